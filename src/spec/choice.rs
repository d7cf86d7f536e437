//! Values that are one of a fixed set of names.

/// Defines an enum whose values have names in specs; the first is the default. Their doc comments are the descriptions
/// in the JSON Schema.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident: $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            #[default]
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant),+
        }

        #[allow(dead_code, reason = "not every choice is listed, or read outside of specs")]
        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in specs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// `None` unless `text` is one of the names.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|c| c.name() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use choice;
