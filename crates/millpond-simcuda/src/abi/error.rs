//! Errors as texts.

use std::ffi::c_char;

use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::raw_pointers::{Out, static_text};

fn hand_over(text: Option<&'static str>, to: Out<*const c_char>) -> Answer {
    match text {
        Some(text) => to.set(static_text(text)),
        None => {
            to.set(std::ptr::null())?;
            Err(Code::INVALID_VALUE)
        }
    }
}

entries! {
    fn cuGetErrorName(code: i32, name: Out<*const c_char>) {
        hand_over(Code(code).name(), name)
    }

    fn cuGetErrorString(code: i32, text: Out<*const c_char>) {
        hand_over(Code(code).text(), text)
    }
}
