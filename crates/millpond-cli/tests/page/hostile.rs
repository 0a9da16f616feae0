//! Names that would be markup, if anybody let them.

use crate::tab::{DESKTOP, Tab};
use crate::written::{TRACE, folder, replay};

#[test]
fn hostile_names_are_only_names() {
    let trace = "x<!--<script>\"'&amp;<img src=y onerror=alert(1)>{{style}}";
    let copy = folder().join(format!("{trace}.pickle.gz"));
    std::fs::copy(TRACE, &copy).unwrap();
    // A path has slashes, so that the end of a script can be a part of an allocator's name.
    let log = folder().join("a<").join("script><script>window.harmed = 1<").join("script>.csv");
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    let stack = format!("trace:{}/direct", log.display());
    let written = replay("hostile", &[copy.to_str().unwrap(), "--allocator", &stack, "--quick"]);
    let name = written.json["traces"][0]["results"][0]["allocator"].as_str().unwrap();
    assert!(name.contains("</script><script>"), "{name}");
    let text = std::fs::read_to_string(&written.page).unwrap();
    assert!(!text.contains("harmed = 1</script>") && !text.contains("<img"));

    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    assert_eq!(tab.text("document.title"), format!("Replay of {trace}"));
    assert_eq!(tab.text("document.querySelector('h1').textContent"), format!("Replay of {trace}"));
    assert_eq!(tab.text("document.querySelector('.entry[data-name]').dataset.name"), name);
    assert_eq!(tab.text("typeof window.harmed"), "undefined");
    assert_eq!(tab.number("document.querySelectorAll('script, img').length"), 2.0);
    tab.resize(crate::tab::PHONE);
    tab.frame();
    assert_eq!(tab.number("document.documentElement.scrollWidth"), 360.0);
    tab.close();
    std::fs::remove_file(copy).unwrap();
}
