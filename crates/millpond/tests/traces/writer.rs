//! A tiny writer of pickles.

/// A Python value.
#[derive(Clone, Debug)]
pub(crate) enum Py {
    Int(i64),
    Text(String),
    List(Vec<Py>),
    Dict(Vec<(Py, Py)>),
}

pub(crate) fn text(text: &str) -> Py {
    Py::Text(text.to_owned())
}

pub(crate) fn list(items: impl IntoIterator<Item = Py>) -> Py {
    Py::List(items.into_iter().collect())
}

pub(crate) fn dict<const N: usize>(items: [(&str, Py); N]) -> Py {
    Py::Dict(items.into_iter().map(|(key, value)| (text(key), value)).collect())
}

impl Py {
    /// The value as a pickle of protocol 4, without frames.
    pub(crate) fn pickle(&self) -> Vec<u8> {
        let mut bytes = vec![0x80, 4];
        self.write(&mut bytes);
        bytes.push(b'.');
        bytes
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Py::Int(number) => {
                bytes.extend([0x8a, 8]);
                bytes.extend(number.to_le_bytes());
            }
            Py::Text(text) => {
                bytes.push(b'X');
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
                bytes.push(0x94);
            }
            Py::List(items) => {
                bytes.extend(b"]\x94(");
                items.iter().for_each(|item| item.write(bytes));
                bytes.push(b'e');
            }
            Py::Dict(items) => {
                bytes.extend(b"}\x94(");
                for (key, value) in items {
                    key.write(bytes);
                    value.write(bytes);
                }
                bytes.push(b'u');
            }
        }
    }
}
