//! From SQL text to the typed tree, by allow-list: what is not named here is rejected.

mod builder;
mod expression;
mod functions;
mod query;

use sqlparser::ast::{Query, Spanned};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{CheckError, Position, Reason};
use crate::limits::{MAX_NESTING, MAX_TEXT_BYTES, MAX_TOKENS};

pub use functions::{FUNCTIONS, Function};
pub(crate) use query::{OrderKey, Parts, SelectColumn, Source, check};

const START: Position = Position { line: 1, column: 1 };

fn position(location: Location) -> Position {
    // A location without a place is (0, 0).
    Position { line: location.line.max(1), column: location.column.max(1) }
}

fn start_of(spanned: &impl Spanned) -> Position {
    position(spanned.span().start)
}

/// A text's words with their places, for errors about clauses, whose places the parser drops.
struct Words(Vec<TokenWithSpan>);

impl Words {
    /// Where a word stands; it is looked for only where the parser has seen it.
    fn place(&self, word: &str) -> Position {
        let is = |token: &Token| token.to_string().eq_ignore_ascii_case(word);
        self.0.iter().find(|t| is(&t.token)).map_or(START, |t| position(t.span.start))
    }

    /// The word that begins at a place.
    fn at(&self, at: Position) -> String {
        let found = self.0.iter().find(|token| position(token.span.start) == at);
        found.map_or_else(|| "this".to_owned(), |token| token.token.to_string())
    }
}

fn parse(text: &str) -> Result<(Box<Query>, Words), CheckError> {
    if text.len() > MAX_TEXT_BYTES {
        let what = "bytes of text";
        return Err(Reason::Limit { what, found: text.len(), limit: MAX_TEXT_BYTES }.at(START));
    }
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| {
        Reason::Syntax(lowercase_first(&error.message)).at(position(error.location))
    })?;
    let words: Vec<_> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).cloned().collect();
    if words.len() > MAX_TOKENS {
        let at = position(words[MAX_TOKENS].span.start);
        let what = "words and signs in the text";
        return Err(Reason::Limit { what, found: words.len(), limit: MAX_TOKENS }.at(at));
    }
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(MAX_NESTING).with_tokens_with_locations(tokens);
    let end = words.last().map_or(START, |last| position(last.span.end));
    let query = parser.parse_query().map_err(|error| syntax_error(error, end))?;
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        let message = format!("expected the end of the text, found: {rest}");
        return Err(Reason::Syntax(message).at(position(rest.span.start)));
    }
    Ok((query, Words(words)))
}

fn syntax_error(error: ParserError, end: Position) -> CheckError {
    match error {
        ParserError::RecursionLimitExceeded => {
            let (found, limit) = (MAX_NESTING + 1, MAX_NESTING);
            Reason::Limit { what: "nested brackets and calls", found, limit }.at(START)
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
            let (message, at) = split_place(&message).unwrap_or((&message, end));
            Reason::Syntax(lowercase_first(message)).at(at)
        }
    }
}

/// The parser puts the place into its text, `… at Line: 1, Column: 14`, but for the text's end.
fn split_place(message: &str) -> Option<(&str, Position)> {
    let (text, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some((text, Position { line: line.parse().ok()?, column: column.parse().ok()? }))
}

fn lowercase_first(message: &str) -> String {
    let mut chars = message.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
