//! The driver's answers that the hook gives or looks at.

/// `CUresult`, as the number that programs see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const SUCCESS: Code = Code(0);
    pub(crate) const INVALID_VALUE: Code = Code(1);
    pub(crate) const OUT_OF_MEMORY: Code = Code(2);
    pub(crate) const INVALID_HANDLE: Code = Code(400);
    pub(crate) const NOT_FOUND: Code = Code(500);
    pub(crate) const NOT_READY: Code = Code(600);
    pub(crate) const NOT_SUPPORTED: Code = Code(801);
    pub(crate) const UNKNOWN: Code = Code(999);

    /// Whether the driver did it.
    pub(crate) fn check(number: i32) -> Answer {
        if number == 0 { Ok(()) } else { Err(Code(number)) }
    }
}

/// What a call comes to.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// As the ABI has it.
pub(crate) fn number(answer: Answer) -> i32 {
    match answer {
        Ok(()) => Code::SUCCESS.0,
        Err(code) => code.0,
    }
}
