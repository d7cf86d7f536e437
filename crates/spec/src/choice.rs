//! Values that are one of a fixed set of names.

/// Defines a [`named!`](base::named!) enum for specs; the first value is the default. Doc comments are the
/// descriptions in the JSON Schema.
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident: $($variants:tt)+) => {
        $crate::base::named! {
            $(#[$meta])*
            #[derive(Default, schemars::JsonSchema)]
            pub enum $name {
                #[default]
                $($variants)+
            }
        }
    };
}
