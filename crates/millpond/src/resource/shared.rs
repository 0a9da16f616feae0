//! Whoever points to a resource is one: an [`Arc`], a [`Box`], a reference.

use std::sync::Arc;

use super::{AllocError, FreeError, Recoverable, Resource, Usage};
use crate::driver::{DevicePtr, Driver, Stream};

macro_rules! points_to_a_resource {
    ($($pointer:ty),*) => {
        $(
            impl<R: Resource + ?Sized> Resource for $pointer {
                #[inline]
                fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
                    (**self).allocate(bytes, stream)
                }

                #[inline]
                fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
                    (**self).deallocate(ptr, bytes, stream)
                }

                fn usage(&self) -> Usage {
                    (**self).usage()
                }

                fn trim(&self) -> usize {
                    (**self).trim()
                }

                fn reserved_bytes(&self) -> usize {
                    (**self).reserved_bytes()
                }

                fn recoverable(&self) -> Recoverable {
                    (**self).recoverable()
                }

                fn driver(&self) -> &Arc<dyn Driver> {
                    (**self).driver()
                }
            }
        )*
    };
}

points_to_a_resource!(Arc<R>, Box<R>, &R);
