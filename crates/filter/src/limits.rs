//! The limits of a filter; an error names the one that was exceeded.

/// Bytes of a filter's text. The longest filters of community brokers have about 4 kB.
pub const MAX_TEXT_BYTES: usize = 32_768;

/// Words and signs of a filter's text; a chain of operators nests as deeply in the parser.
pub const MAX_TOKENS: usize = 4_096;

/// Levels of an expression within another; chains of AND and of OR are one level.
pub const MAX_DEPTH: usize = 64;

/// Nested brackets, calls and CASEs while a text is parsed.
pub(crate) const MAX_NESTING: usize = 48;

/// Expressions in a filter, one within another counted singly.
pub const MAX_NODES: usize = 2_048;

/// Values of an IN list; longer lists of positions are watch lists.
pub const MAX_IN_VALUES: usize = 1_000;

/// Bytes of a LIKE pattern: matching takes time in proportion to text and pattern.
pub const MAX_PATTERN_BYTES: usize = 256;

/// Columns of a SELECT.
pub const MAX_SELECT_COLUMNS: usize = 256;

/// Expressions of an ORDER BY.
pub const MAX_ORDER_KEYS: usize = 4;

/// Filters of one plan: ten times the users of the reference workload with ten filters each.
pub const MAX_FILTERS: usize = 10_000;

/// Rows of a batch, so that row numbers and points of history fit in 32 bits.
pub const MAX_BATCH_ROWS: usize = 1 << 20;

/// Positions of a watch list.
pub const MAX_WATCH_POSITIONS: usize = 1_000_000;

/// The radius of a watch list, in arcseconds: one degree.
pub const MAX_WATCH_RADIUS_ARCSEC: f64 = 3_600.0;

/// Ranges of a region; a sky map of gravitational waves has some ten thousand.
pub const MAX_REGION_RANGES: usize = 1_000_000;
