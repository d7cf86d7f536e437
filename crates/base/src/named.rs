//! Enums whose values have names.

/// Defines an enum whose values have one name each, in specs, files and messages.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $enum:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $name:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[allow(missing_docs, reason = "a value is what its name says")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        $vis enum $enum { $($(#[$variant_meta])* #[serde(rename = $name)] $variant),+ }

        #[allow(dead_code, reason = "not every enum is listed or parsed")]
        impl $enum {
            /// All values, in order.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Their names.
            $vis const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];

            /// The name in specs, files and messages.
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The value with this name, if there is one.
            $vis fn parse(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// The value of a switch in the environment; `None` if it is neither on nor off.
pub fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    named! {
        enum Colour {
            Red = "red",
            DarkBlue = "dark-blue",
        }
    }

    #[test]
    fn a_switch_is_on_or_off_in_any_case() {
        assert_eq!(["1", "True", "YES", "on"].map(super::switch), [Some(true); 4]);
        assert_eq!(["0", "False", "no", "OFF"].map(super::switch), [Some(false); 4]);
        assert_eq!(["", "2", "maybe"].map(super::switch), [None; 3]);
    }

    #[test]
    fn names_are_those_of_serde_and_of_display() {
        assert_eq!(Colour::ALL, [Colour::Red, Colour::DarkBlue]);
        assert_eq!(
            (Colour::ALL.map(Colour::name), Colour::NAMES),
            (["red", "dark-blue"], ["red", "dark-blue"])
        );
        for colour in Colour::ALL {
            assert_eq!(serde_json::to_value(colour).unwrap(), colour.name());
            assert_eq!(serde_json::from_value::<Colour>(colour.name().into()).unwrap(), colour);
            assert_eq!(Colour::parse(colour.name()), Some(colour));
        }
        assert_eq!(Colour::parse("DarkBlue"), None);
        assert_eq!(format!("{:>5}|{}", Colour::Red, Colour::DarkBlue), "  red|dark-blue");
    }
}
