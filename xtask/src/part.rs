//! A share of a long lane, so that several runs make the whole: `--part 2/3`.

use std::str::FromStr;

/// The share with this number, from 1, of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    number: usize,
    of: usize,
}

impl Part {
    /// Everything.
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    /// Whether the share holds what stands at `index`, from 0. Neighbours are dealt to different shares, so that each takes as long.
    pub(crate) fn holds(self, index: usize) -> bool {
        index % self.of == self.number - 1
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            Some(_) | None => Err("expected a share such as 2/3, the second of three".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_together_are_the_whole_and_none_holds_what_another_does() {
        for index in 0..10 {
            let holders = ["1/3", "2/3", "3/3"].iter().filter(|text| text.parse::<Part>().unwrap().holds(index));
            assert_eq!(holders.count(), 1, "{index}");
            assert!(Part::WHOLE.holds(index));
        }
        for wrong in ["", "1", "0/3", "4/3", "1/0", "a/b", "1/3/3"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
