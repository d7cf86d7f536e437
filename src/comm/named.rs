//! Enums whose variants have names.

/// Defines an enum with `ALL` and `name`. A variant's position is its wire code.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $enum:ident { $($(#[$variant_meta:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        $vis enum $enum { $($(#[$variant_meta])* $variant,)+ }

        impl $enum {
            /// All values, in order.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in specs, logs and records.
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

pub(super) use named;
