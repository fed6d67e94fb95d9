//! A recursive-descent parser of predicates.
//!
//! ```text
//! predicate  = [ any ] ;
//! any        = all { "or" all } ;
//! all        = one { [ "and" ] one } ;
//! one        = "not" one | "(" any ")" | "has" field | "view" value | comparison | words ;
//! comparison = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~" ) value ;
//! field      = NAME | ( "data" | "args" ) "." name { "." name } ;
//! value      = BARE | QUOTED ;
//! words      = BARE | QUOTED ;
//! ```

use helio_core::Tai;

use super::compare::{Number, Order, Pattern, Sense, TextTest, ValueTest};
use super::glob::Glob;
use super::tree::{Expression, Field, KEYWORDS, Moment, Path, Root, Term, UNITS};
use super::words::words;
use super::{MAX_NESTING, MAX_PHRASE_WORDS, MAX_PREDICATE_BYTES, MAX_REGEXES, PredicateError};
use crate::fields::TextField;
use crate::level::{Level, LevelError};
use crate::value::MAX_DEPTH;

type Result<T> = std::result::Result<T, PredicateError>;

/// Parses a predicate.
pub(super) fn parse(text: &str) -> Result<Expression> {
    let mut parser = Parser { text, at: 0, nesting: 0, regexes: 0 };
    let long = || format!("at most {MAX_PREDICATE_BYTES} bytes");
    if text.len() > MAX_PREDICATE_BYTES {
        let end = (0..=MAX_PREDICATE_BYTES).rev().find(|at| text.is_char_boundary(*at));
        return Err(parser.error(end.unwrap_or(0), &long()));
    }
    parser.skip_space();
    if parser.rest().is_empty() {
        return Ok(Expression::All(Vec::new()));
    }
    let tree = parser.any()?;
    if !parser.rest().is_empty() {
        return Err(parser.error(parser.at, "the end; no parenthesis is open"));
    }
    // The displayed form must parse again.
    if tree.to_string().len() > MAX_PREDICATE_BYTES {
        return Err(parser.error(text.len(), &format!("{} when written out", long())));
    }
    Ok(tree)
}

/// Parses the name of a field alone.
pub(super) fn field(text: &str) -> Result<Field> {
    let mut parser = Parser { text, at: 0, nesting: 0, regexes: 0 };
    let field = parser.field()?;
    let whole = field.filter(|_| parser.rest().is_empty());
    whole.ok_or_else(|| parser.error(0, &format!("one of the fields {}", Field::names())))
}

/// The operator of a comparison.
#[derive(Clone, Copy)]
enum Relation {
    Order(Order),
    Match(Sense),
}

struct Operand {
    at: usize,
    text: String,
    quoting: Quoting,
}

#[derive(PartialEq)]
enum Quoting {
    Bare,
    Quoted,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    nesting: usize,
    regexes: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, at: usize, expected: &str) -> PredicateError {
        let column = self.text[..at].chars().count() + 1;
        let rest = &self.text[at..];
        let behind = rest.char_indices().skip(1).find(|(_, c)| c.is_whitespace());
        let found = &rest[..behind.map_or(rest.len(), |(end, _)| end)];
        let found = found.chars().take(24).collect();
        PredicateError { column, expected: expected.to_owned(), found }
    }

    fn fail<T>(&self, at: usize, expected: &str) -> Result<T> {
        Err(self.error(at, expected))
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// The text up to one of these characters, or to the end of a bare text.
    fn run(&self, ends: &[char]) -> &'a str {
        let ends = |c: char| c.is_whitespace() || "()\"".contains(c) || ends.contains(&c);
        let rest = self.rest();
        &rest[..rest.find(ends).unwrap_or(rest.len())]
    }

    /// The next word, if there is one.
    fn word(&self) -> &'a str {
        self.run(&['=', '!', '<', '>', '~'])
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let is_next = self.word().eq_ignore_ascii_case(keyword);
        if is_next {
            self.at += keyword.len();
            self.skip_space();
        }
        is_next
    }

    fn any(&mut self) -> Result<Expression> {
        let mut terms = vec![self.all()?];
        while self.keyword("or") {
            terms.push(self.all()?);
        }
        Ok(Expression::any(terms))
    }

    fn all(&mut self) -> Result<Expression> {
        let mut terms = vec![self.one()?];
        loop {
            let said = self.keyword("and");
            let is_end = self.rest().is_empty() || self.rest().starts_with(')');
            if !said && (is_end || self.word().eq_ignore_ascii_case("or")) {
                return Ok(Expression::all(terms));
            }
            terms.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Expression> {
        let start = self.at;
        if self.keyword("not") {
            let inner = self.nested(start, Self::one)?;
            return Ok(Expression::Not(Box::new(inner)));
        }
        if self.rest().starts_with('(') {
            return self.nested(start, Self::group);
        }
        let term = self.term()?;
        self.skip_space();
        Ok(Expression::Term(term))
    }

    fn nested(
        &mut self,
        start: usize,
        inner: fn(&mut Self) -> Result<Expression>,
    ) -> Result<Expression> {
        if self.nesting == MAX_NESTING {
            return self.fail(start, &format!("at most {MAX_NESTING} ( and not in each other"));
        }
        self.nesting += 1;
        let found = inner(self);
        self.nesting -= 1;
        found
    }

    fn group(&mut self) -> Result<Expression> {
        self.at += 1;
        self.skip_space();
        let inner = self.any()?;
        if !self.rest().starts_with(')') {
            return self.fail(self.at, "), and, or, or another term");
        }
        self.at += 1;
        self.skip_space();
        Ok(inner)
    }

    fn term(&mut self) -> Result<Term> {
        let start = self.at;
        if self.rest().starts_with('"') {
            let text = self.quoted()?;
            return self.phrase(start, &text);
        }
        if self.keyword("has") {
            let start = self.at;
            let unknown = || format!("a field: {}", Field::names());
            let field = self.field()?.ok_or_else(|| self.error(start, &unknown()))?;
            self.ended()?;
            return Ok(Term::Has(field));
        }
        if self.keyword("view") {
            let name = self.operand("the name of a view")?;
            if name.text.is_empty() {
                return self.fail(name.at, "the name of a view");
            }
            return Ok(Term::View(name.text));
        }
        match self.field()? {
            Some(field) => self.comparison(field),
            None => self.bare(),
        }
    }

    /// Parses a word of the message, and rejects what resembles another term.
    fn bare(&mut self) -> Result<Term> {
        let (start, word) = (self.at, self.word());
        if word.is_empty() || KEYWORDS.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            return self.fail(start, "a field, a word, a \"phrase\", not, has, view or (");
        }
        self.at += word.len();
        self.skip_space();
        if self.rest().starts_with(['=', '!', '<', '>', '~']) {
            return self.fail(start, &format!("one of the fields {}", Field::names()));
        }
        self.at = start + word.len();
        let before = word.split(':').next().unwrap_or_default();
        if before != word && (Field::of(before).is_some() || Root::of(before).is_some()) {
            return self.fail(start, &format!("{before} = VALUE; or a \"phrase\" in quotes"));
        }
        if word.starts_with('-') {
            return self.fail(start, "a word; what is not to be there stands behind not");
        }
        if word.contains('*') {
            return self.fail(start, "a whole word; for parts of words write message ~ REGEX");
        }
        self.ended()?;
        self.phrase(start, word)
    }

    fn phrase(&self, start: usize, text: &str) -> Result<Term> {
        let found: Vec<_> = words(text).map(Into::into).collect();
        if found.is_empty() || found.len() > MAX_PHRASE_WORDS {
            let expected = format!("1 to {MAX_PHRASE_WORDS} words of letters and digits");
            return self.fail(start, &expected);
        }
        Ok(Term::Words(found))
    }

    /// The next field; none for any other input.
    fn field(&mut self) -> Result<Option<Field>> {
        let word = self.word();
        if let Some(field) = Field::of(word) {
            self.at += word.len();
            return Ok(Some(field));
        }
        let root = word.split('.').next().unwrap_or_default();
        let Some(found) = Root::of(root) else { return Ok(None) };
        self.at += root.len();
        let mut names = Vec::new();
        while self.rest().starts_with('.') && names.len() < MAX_DEPTH {
            self.at += 1;
            names.push(self.name()?);
        }
        if names.is_empty() || self.rest().starts_with('.') {
            let expected = format!("1 to {MAX_DEPTH} names, as in {root}.NAME; or \"{root}\"");
            return self.fail(self.at, &expected);
        }
        Ok(Some(Field::Value(Path { root: found, names })))
    }

    fn name(&mut self) -> Result<String> {
        let start = self.at;
        let name = match self.rest().starts_with('"') {
            true => self.quoted()?,
            false => {
                let name = self.run(&['.', '=', '!', '<', '>', '~']);
                self.at += name.len();
                name.to_owned()
            }
        };
        if name.is_empty() { self.fail(start, "a name") } else { Ok(name) }
    }

    fn comparison(&mut self, field: Field) -> Result<Term> {
        self.skip_space();
        let (start, relation) = (self.at, self.relation(&field)?);
        self.skip_space();
        Ok(match field {
            Field::Level => {
                let order = self.order(start, relation)?;
                let operand = self.operand("a level")?;
                let level: std::result::Result<Level, LevelError> = operand.text.parse();
                let expected = "a level: TRACE, DELOUSE, DEBUG, INFO, NOTICE, WARNING, ERROR, \
                                CRITICAL, ALERT, EMERGENCY, or 1 to 11";
                Term::Level(order, level.map_err(|_| self.error(operand.at, expected))?)
            }
            Field::Time => {
                let order = self.order(start, relation)?;
                let operand = self.operand("a time")?;
                let expected = "a time such as 2026-11-21T03:00:00Z, -15m or now";
                let time = moment(&operand.text);
                Term::Time(order, time.ok_or_else(|| self.error(operand.at, expected))?)
            }
            Field::Line => {
                let order = self.order(start, relation)?;
                let operand = self.operand("the number of a line")?;
                let line = operand.text.parse();
                let wrong = |_| self.error(operand.at, "the number of a line");
                Term::Line(order, line.map_err(wrong)?)
            }
            Field::Audience => Term::Audience(self.audience(start, relation)?),
            Field::Text(field) => {
                let mut operand = self.operand("a text")?;
                if matches!(field, TextField::Trace | TextField::Span) {
                    operand.text.make_ascii_lowercase();
                }
                if operand.text.is_empty() && matches!(relation, Relation::Order(_)) {
                    let name = Field::Text(field);
                    let expected = format!("a text; where there is none, write not has {name}");
                    return self.fail(operand.at, &expected);
                }
                Term::Text(field, self.text_test(relation, operand)?)
            }
            Field::Value(path) => Term::Value(path, self.value_test(relation)?),
        })
    }

    fn relation(&mut self, field: &Field) -> Result<Relation> {
        let signs = [
            ("!=", Relation::Order(Order::NotEqual)),
            ("!~", Relation::Match(Sense::IsNot)),
            ("<=", Relation::Order(Order::AtMost)),
            (">=", Relation::Order(Order::AtLeast)),
            ("=", Relation::Order(Order::Equal)),
            ("<", Relation::Order(Order::Less)),
            (">", Relation::Order(Order::Greater)),
            ("~", Relation::Match(Sense::Is)),
        ];
        let found = signs.iter().find(|(sign, _)| self.rest().starts_with(sign));
        let Some((sign, relation)) = found else {
            let word = match field {
                Field::Value(_) => String::new(),
                field => format!("; for the word write \"{field}\""),
            };
            return self.fail(self.at, &format!("one of = != < <= > >= ~ !~{word}"));
        };
        self.at += sign.len();
        if self.rest().starts_with(['=', '!', '<', '>', '~']) {
            return self.fail(self.at, "a value; put it in quotes where it begins like this");
        }
        Ok(*relation)
    }

    fn order(&self, at: usize, relation: Relation) -> Result<Order> {
        match relation {
            Relation::Order(order) => Ok(order),
            Relation::Match(_) => self.fail(at, "one of = != < <= > >=; ~ and !~ are for texts"),
        }
    }

    fn audience(&mut self, start: usize, relation: Relation) -> Result<TextTest> {
        use Order::{Equal, NotEqual};
        if matches!(relation, Relation::Order(order) if !matches!(order, Equal | NotEqual)) {
            return self.fail(start, "one of = != ~ !~; audiences have no order");
        }
        let operand = self.operand("an audience")?;
        let is_name = matches!(relation, Relation::Order(_));
        if is_name && (operand.text.is_empty() || operand.text.contains('*')) {
            return self.fail(operand.at, "an audience; for a pattern write audience ~ REGEX");
        }
        self.text_test(relation, operand)
    }

    fn text_test(&mut self, relation: Relation, operand: Operand) -> Result<TextTest> {
        let Operand { at, text, quoting } = operand;
        let is_glob = quoting == Quoting::Bare && text.contains('*');
        Ok(match relation {
            Relation::Match(sense) => TextTest::Regex(sense, self.regex(at, &text)?),
            Relation::Order(Order::Equal) if is_glob => {
                TextTest::Glob(Sense::Is, self.glob(at, &text)?)
            }
            Relation::Order(Order::NotEqual) if is_glob => {
                TextTest::Glob(Sense::IsNot, self.glob(at, &text)?)
            }
            Relation::Order(_) if is_glob => {
                return self.fail(at, "a text without *, or = or != before it");
            }
            Relation::Order(order) => TextTest::Order(order, text),
        })
    }

    fn value_test(&mut self, relation: Relation) -> Result<ValueTest> {
        let operand = self.operand("a number or a text")?;
        if let (Relation::Order(order), Quoting::Bare) = (relation, &operand.quoting)
            && let Some(number) = Number::parse(&operand.text)
        {
            return Ok(ValueTest::Number(order, number));
        }
        Ok(ValueTest::Text(self.text_test(relation, operand)?))
    }

    fn regex(&mut self, at: usize, text: &str) -> Result<Pattern> {
        self.regexes += 1;
        if self.regexes > MAX_REGEXES {
            return self.fail(at, &format!("at most {MAX_REGEXES} regular expressions"));
        }
        let wrong = |why| self.error(at, &format!("a regular expression ({why})"));
        Pattern::new(text).map_err(wrong)
    }

    fn glob(&self, at: usize, text: &str) -> Result<Glob> {
        text.parse().map_err(|why| self.error(at, &format!("a pattern with * ({why})")))
    }

    fn operand(&mut self, what: &str) -> Result<Operand> {
        let at = self.at;
        let (text, quoting) = match self.rest().starts_with('"') {
            true => (self.quoted()?, Quoting::Quoted),
            false => {
                let run = self.run(&[]);
                self.at += run.len();
                (run.to_owned(), Quoting::Bare)
            }
        };
        if text.is_empty() && quoting == Quoting::Bare {
            return self.fail(at, what);
        }
        self.ended()?;
        Ok(Operand { at, text, quoting })
    }

    /// Parses a text in quotes. A backslash is literal unless it precedes a quote or another
    /// backslash.
    fn quoted(&mut self) -> Result<String> {
        let start = self.at;
        let mut text = String::new();
        let mut rest = self.rest()[1..].char_indices().peekable();
        while let Some((at, c)) = rest.next() {
            match c {
                '"' => {
                    self.at += at + 2;
                    self.ended_name()?;
                    return Ok(text);
                }
                '\\' => text.push(rest.next_if(|(_, c)| "\"\\".contains(*c)).map_or(c, |(_, c)| c)),
                c => text.push(c),
            }
        }
        self.fail(start, "a quote at the end, too")
    }

    /// A closing quote must not be followed by a letter, which would be another term.
    fn ended_name(&self) -> Result<()> {
        let stuck = |c: char| c.is_alphanumeric() || c == '"';
        if self.rest().starts_with(stuck) { self.fail(self.at, "a space") } else { Ok(()) }
    }

    /// Checks that a term ends at a space, a parenthesis or the end.
    fn ended(&self) -> Result<()> {
        let ends = |c: char| c.is_whitespace() || "()".contains(c);
        let is_end = self.rest().is_empty() || self.rest().starts_with(ends);
        if is_end { Ok(()) } else { self.fail(self.at, "a space") }
    }
}

/// Parses a time: ISO 8601, `now`, or a time before now as in `-1h30m`.
fn moment(text: &str) -> Option<Moment> {
    if text.eq_ignore_ascii_case("now") {
        return Some(Moment::Ago(0));
    }
    if let Some(ago) = text.strip_prefix('-') {
        return span(ago).map(Moment::Ago);
    }
    let time: Tai = text.parse().ok()?;
    // In a leap second the written UTC is ambiguous.
    (time.to_string().parse() == Ok(time)).then_some(Moment::At(time))
}

pub(crate) fn span(mut text: &str) -> Option<i64> {
    let mut nanos: i64 = 0;
    while !text.is_empty() {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = text.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, rest) = behind.split_at(letters);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanos = nanos.checked_add(number.parse::<i64>().ok()?.checked_mul(*unit)?)?;
        text = rest;
    }
    Some(nanos)
}
