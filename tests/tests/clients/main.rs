//! Real programs that speak to a GPU, unmodified, over the stand-ins for NVIDIA's libraries.

mod abi;
mod c_program;
mod configuration;
mod cudarc_client;
mod python;
mod runtime;
mod venv;

/// Runs a client, and fails with what it said if it does.
fn succeeds(client: &mut std::process::Command) -> String {
    let output = client.output().unwrap_or_else(|error| panic!("{client:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{client:?}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said.into_owned()
}
