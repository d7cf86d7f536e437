//! Values that are one of a fixed set of names.

/// Defines a [`named!`](crate::named::named) enum for specs; the first value is the default. Doc comments are the
/// descriptions in the JSON Schema.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident: $($variants:tt)+) => {
        $crate::named::named! {
            $(#[$meta])*
            #[derive(Default, schemars::JsonSchema)]
            pub enum $name {
                #[default]
                $($variants)+
            }
        }
    };
}

pub(crate) use choice;
