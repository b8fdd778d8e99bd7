//! What a column of a row holds, when rows go from one store to another as they are.

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// None.
    Null,
    /// A whole number, or a truth as 0 or 1.
    Int(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}
