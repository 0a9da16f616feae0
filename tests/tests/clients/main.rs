//! Real programs that speak to a GPU, unmodified, over the stand-ins for NVIDIA's libraries.

mod abi;
mod c_program;
mod configuration;
mod cudarc_client;
mod header_tables;
mod python;
mod runtime;
mod venv;
