//! The lines that make a program use an allocator.

use bytesize::ByteSize;
use millpond::pool::PoolConfig;
use serde::Serialize;

use super::candidates::THREAD_CACHE;

/// What to write where. `None`: there is no such way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Paste {
    pub(crate) pytorch: Option<String>,
    pub(crate) cpp: String,
    pub(crate) rust: String,
}

impl Paste {
    /// The lines for a stack.
    pub(crate) fn of(stack: &str) -> Paste {
        Paste {
            pytorch: pytorch(stack),
            cpp: format!(
                "millpond_pool *pool; millpond_pool_open(\"cuda:0/{stack}\", &pool);  // millpond.h, -lmillpond"
            ),
            rust: format!("let resource = millpond::stack::build(\"{stack}\", driver)?;"),
        }
    }
}

fn pytorch(stack: &str) -> Option<String> {
    let (name, options) = stack.split_once(':').unwrap_or((stack, ""));
    match name {
        "torch" if options.is_empty() => Some("nothing: it is what PyTorch does".to_owned()),
        "torch" => {
            let settings: Vec<String> = options.split(',').filter_map(torch_setting).collect();
            Some(format!("PYTORCH_CUDA_ALLOC_CONF={}", settings.join(",")))
        }
        // Its release threshold cannot be set from PyTorch.
        "async" if options.is_empty() => {
            Some("PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync".to_owned())
        }
        "pool" => {
            let settings = pool_settings(options);
            let environment = match settings.is_empty() {
                true => String::new(),
                false => format!("MILLPOND_CONF={} and ", settings.join(",")),
            };
            Some(format!("{environment}import millpond.torch; millpond.torch.enable()"))
        }
        _ => None,
    }
}

/// A pool's options as `MILLPOND_CONF` spells them, for what PyTorch's pools have otherwise than others: what was tried is what it gets.
fn pool_settings(options: &str) -> Vec<String> {
    let (caches, mut settings): (Vec<&str>, Vec<&str>) = options
        .split(',')
        .filter(|option| !option.is_empty())
        .partition(|option| option.starts_with(THREAD_CACHE));
    let tried_bytes = match caches.first() {
        Some(option) => bytes_of(option),
        None => PoolConfig::default().thread_cache_max_bytes,
    };
    let cache = format!("{THREAD_CACHE}={tried_bytes}");
    if tried_bytes != PoolConfig::PYTORCH_THREAD_CACHE_MAX_BYTES {
        settings.push(&cache);
    }
    settings.into_iter().map(|setting| setting.replace('=', ":")).collect()
}

/// The size that an option of a stack gives.
fn bytes_of(option: &str) -> usize {
    let size = option.split_once('=').and_then(|(_, size)| size.parse::<ByteSize>().ok());
    size.map_or(0, |size| size.as_u64() as usize)
}

/// An option as PyTorch spells it.
fn torch_setting(option: &str) -> Option<String> {
    let (key, value) = option.split_once('=')?;
    Some(match key {
        "max_split_size" => format!("max_split_size_mb:{}", value.trim_end_matches("MiB")),
        "expandable_segments" => format!("expandable_segments:{}", capitalised(value)),
        _ => format!("{key}:{value}"),
    })
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_spelt_as_their_programs_do() {
        for (stack, line) in [
            ("torch:expandable_segments=true", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
            ("torch:max_split_size=128MiB", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"),
            ("async", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"),
            (
                "pool:slack=0.05,thread_cache_max_bytes=1MiB",
                "MILLPOND_CONF=slack:0.05 and import millpond.torch; millpond.torch.enable()",
            ),
            ("pool:thread_cache_max_bytes=1MiB", "import millpond.torch; millpond.torch.enable()"),
            (
                "pool",
                "MILLPOND_CONF=thread_cache_max_bytes:67108864 and import millpond.torch; millpond.torch.enable()",
            ),
        ] {
            assert_eq!(Paste::of(stack).pytorch.as_deref(), Some(line));
        }
        assert_eq!(Paste::of("bfc").pytorch, None);
    }
}
