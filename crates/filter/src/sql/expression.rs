//! Expressions: the allow-list of operators, and their types.

use std::sync::Arc;

use sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, ExactNumberInfo,
    Expr, Ident, InTarget, UnaryOperator, Value, ValueWithSpan,
};

use super::builder::{Builder, wrong_type};
use super::{Words, position, start_of};
use crate::catalog::Named;
use crate::error::{CheckError, Position, Reason};
use crate::limits::{MAX_DEPTH, MAX_IN_VALUES, MAX_PATTERN_BYTES};
use crate::tree::{Arith, Compare, NodeId, Op};
use crate::types::{Literal, Type};

/// What a light-curve function's argument may name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scope {
    /// Flat columns only.
    Alert,
    /// Fields of one history column, too, once the first was named.
    Points(Option<usize>),
}

pub(super) struct Lowering<'a> {
    pub(super) builder: Builder<'a>,
    pub(super) words: &'a Words,
    pub(super) scope: Scope,
    depth: usize,
}

type Lowered = Result<NodeId, CheckError>;

impl<'a> Lowering<'a> {
    pub(super) fn new(builder: Builder<'a>, words: &'a Words) -> Self {
        Self { builder, words, scope: Scope::Alert, depth: 0 }
    }

    pub(super) fn expression(&mut self, expr: &Expr) -> Lowered {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let (found, limit) = (self.depth, MAX_DEPTH);
            let reason = Reason::Limit { what: "expressions within another", found, limit };
            return Err(reason.at(start(expr)));
        }
        let lowered = self.expression_within(expr);
        self.depth -= 1;
        lowered
    }

    fn expression_within(&mut self, expr: &Expr) -> Lowered {
        let at = start(expr);
        match expr {
            Expr::Nested(inner) => self.expression(inner),
            Expr::Identifier(name) => self.column(std::slice::from_ref(name), at),
            Expr::CompoundIdentifier(names) => self.column(names, at),
            Expr::Value(value) => self.value(value, at),
            Expr::UnaryOp { op, expr } => self.unary(*op, expr, at),
            Expr::BinaryOp { left, op, right } => self.binary(expr, left, op, right),
            Expr::IsNull(inner) => self.null_test(inner, false, at),
            Expr::IsNotNull(inner) => self.null_test(inner, true, at),
            Expr::IsTrue(inner) => self.truth_test(inner, Truth::True, false),
            Expr::IsNotTrue(inner) => self.truth_test(inner, Truth::True, true),
            Expr::IsFalse(inner) => self.truth_test(inner, Truth::False, false),
            Expr::IsNotFalse(inner) => self.truth_test(inner, Truth::False, true),
            Expr::IsUnknown(inner) => self.truth_test(inner, Truth::Unknown, false),
            Expr::IsNotUnknown(inner) => self.truth_test(inner, Truth::Unknown, true),
            Expr::Between { expr, negated, low, high } => {
                let parts = [expr.as_ref(), low, high];
                let between = self.between(parts, at)?;
                self.builder.negated(between, *negated, at)
            }
            Expr::In { expr, target: InTarget::List(values), negated, global: false } => {
                let is_in = self.in_list(expr, values, at)?;
                self.builder.negated(is_in, *negated, at)
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                let like = self.like(expr, pattern, false)?;
                self.builder.negated(like, *negated, at)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                let like = self.like(expr, pattern, true)?;
                self.builder.negated(like, *negated, at)
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), at)
            }
            Expr::Cast { kind, expr, data_type, format: None } => {
                self.cast(kind, expr, data_type, at)
            }
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call("ceil", &[expr.as_ref()], at)
            }
            Expr::Floor {
                expr,
                field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
            } => self.call("floor", &[expr.as_ref()], at),
            Expr::Function(function) => self.function(function),
            _ => Err(self.not_allowed(at)),
        }
    }

    /// The word at a place is not in the language.
    pub(super) fn not_allowed(&self, at: Position) -> CheckError {
        let what = format!("`{}`, as it is used here,", self.words.at(at));
        Reason::NotAllowed { what, remedy: "docs/filters.md lists all of it" }.at(at)
    }

    fn column(&mut self, names: &[Ident], at: Position) -> Lowered {
        let parts: Vec<&str> = names.iter().map(|part| part.value.as_str()).collect();
        let name = parts.join(".");
        match self.builder.catalog.named(&name) {
            Some(Named::Flat(index)) => self.flat(index, at),
            Some(Named::Field { history, field }) => self.field(history, field, name, at),
            Some(Named::History(_)) => {
                let remedy = "name one of its fields in a function such as last or count_if";
                Err(Reason::History { name, remedy }.at(at))
            }
            None => {
                let near = self.builder.catalog.nearest_name(&name);
                Err(Reason::UnknownColumn { name, near }.at(at))
            }
        }
    }

    pub(super) fn flat(&mut self, index: usize, at: Position) -> Lowered {
        let column = self.builder.catalog.flat(index);
        let Some(ty) = column.ty else {
            let (name, arrow) = (column.name.clone(), column.arrow.to_string());
            return Err(Reason::Opaque { name, arrow }.at(at));
        };
        Ok(self.builder.leaf(Op::Column(index), ty))
    }

    fn field(&mut self, history: usize, field: usize, name: String, at: Position) -> Lowered {
        match &mut self.scope {
            Scope::Points(Some(first)) if *first != history => {
                let remedy = "one light-curve function reads one history column";
                return Err(Reason::History { name, remedy }.at(at));
            }
            Scope::Points(first) => *first = Some(history),
            Scope::Alert => {
                let remedy = "use it within a function such as last or count_if";
                return Err(Reason::History { name, remedy }.at(at));
            }
        }
        let column = &self.builder.catalog.history(history).fields[field];
        let Some(ty) = column.ty else {
            return Err(Reason::Opaque { name, arrow: column.arrow.to_string() }.at(at));
        };
        Ok(self.builder.leaf(Op::Field { history, field }, ty))
    }

    fn value(&mut self, value: &ValueWithSpan, at: Position) -> Lowered {
        let (literal, ty) = match &value.value {
            Value::Number(text, false) => number(text).ok_or_else(|| self.not_allowed(at))?,
            Value::SingleQuotedString(text) => (Literal::Text(text.as_str().into()), Type::Utf8),
            Value::Boolean(value) => (Literal::Bool(*value), Type::Bool),
            Value::Null => (Literal::Null, Type::Bool),
            _ => return Err(self.not_allowed(at)),
        };
        Ok(self.builder.literal(literal, ty))
    }

    fn unary(&mut self, op: UnaryOperator, expr: &Expr, at: Position) -> Lowered {
        match op {
            UnaryOperator::Minus => {
                // The least integer has no positive twin.
                if let Expr::Value(ValueWithSpan { value: Value::Number(text, false), .. }) = expr
                    && let Some((literal, ty)) = number(&format!("-{text}"))
                {
                    return Ok(self.builder.literal(literal, ty));
                }
                let value = self.expression(expr)?;
                let value = self.builder.number(value, "-", |ty| ty, at)?;
                self.builder.add(Op::Neg, &[value], self.builder.ty(value), at)
            }
            UnaryOperator::Plus => {
                let value = self.expression(expr)?;
                self.builder.number(value, "+", |ty| ty, at)
            }
            UnaryOperator::Not => {
                let value = self.expression(expr)?;
                let value = self.builder.boolean(value, "NOT", at)?;
                self.builder.not(value, at)
            }
            _ => Err(self.not_allowed(at)),
        }
    }

    fn binary(&mut self, whole: &Expr, left: &Expr, op: &BinaryOperator, right: &Expr) -> Lowered {
        let at = start(left);
        match op {
            BinaryOperator::And | BinaryOperator::Or => self.logic(whole, op, at),
            BinaryOperator::Plus => self.arithmetic(Arith::Add, op, left, right),
            BinaryOperator::Minus => self.arithmetic(Arith::Sub, op, left, right),
            BinaryOperator::Multiply => self.arithmetic(Arith::Mul, op, left, right),
            BinaryOperator::Divide => self.arithmetic(Arith::Div, op, left, right),
            BinaryOperator::Modulo => self.arithmetic(Arith::Rem, op, left, right),
            BinaryOperator::Eq => self.comparison(Compare::Eq, [left, right], at),
            BinaryOperator::NotEq => self.comparison(Compare::Ne, [left, right], at),
            BinaryOperator::Lt => self.comparison(Compare::Lt, [left, right], at),
            BinaryOperator::LtEq => self.comparison(Compare::Le, [left, right], at),
            BinaryOperator::Gt => self.comparison(Compare::Lt, [right, left], at),
            BinaryOperator::GtEq => self.comparison(Compare::Le, [right, left], at),
            _ => {
                let what = format!("the operator {op}");
                Err(Reason::NotAllowed { what, remedy: "docs/filters.md lists all of it" }.at(at))
            }
        }
    }

    /// A chain of AND or of OR is one expression, however long.
    fn logic(&mut self, whole: &Expr, op: &BinaryOperator, at: Position) -> Lowered {
        let mut args = Vec::new();
        for part in chain(whole, op) {
            let value = self.expression(part)?;
            args.push(self.builder.boolean(value, &op.to_string(), start(part))?);
        }
        let op = if *op == BinaryOperator::And { Op::And } else { Op::Or };
        self.builder.add(op, &args, Type::Bool, at)
    }

    fn arithmetic(
        &mut self,
        arith: Arith,
        op: &BinaryOperator,
        left: &Expr,
        right: &Expr,
    ) -> Lowered {
        let what = op.to_string();
        let mut args = Vec::new();
        for side in [left, right] {
            let value = self.expression(side)?;
            let found = self.builder.ty(value);
            if !found.is_number() && !self.builder.is_null_literal(value) {
                return Err(wrong_type(&what, "numbers", found).at(start(side)));
            }
            args.push(value);
        }
        let at = start(left);
        let (args, ty) = self.builder.unified(&args, at)?;
        if ty == Type::Bool {
            // NULL + NULL
            return Ok(self.builder.literal(Literal::Null, Type::Float64));
        }
        self.builder.add(Op::Arith(arith), &args, ty, at)
    }

    fn comparison(&mut self, compare: Compare, sides: [&Expr; 2], at: Position) -> Lowered {
        let [left, right] = sides;
        let args = [self.expression(left)?, self.expression(right)?];
        let (args, _) = self.builder.unified(&args, at)?;
        self.builder.add(Op::Compare(compare), &args, Type::Bool, at)
    }

    fn null_test(&mut self, inner: &Expr, negated: bool, at: Position) -> Lowered {
        // Columns that expressions cannot use can be missing, too; their nulls are not decoded.
        let value = self.expression(inner)?;
        let is_null = self.builder.is_null(value, at)?;
        self.builder.negated(is_null, negated, at)
    }

    fn truth_test(&mut self, inner: &Expr, truth: Truth, negated: bool) -> Lowered {
        let at = start(inner);
        let value = self.expression(inner)?;
        let value = self.builder.boolean(value, "IS", at)?;
        let test = match truth {
            Truth::True => self.builder.add(Op::IsTrue, &[value], Type::Bool, at)?,
            Truth::False => {
                let not = self.builder.not(value, at)?;
                self.builder.add(Op::IsTrue, &[not], Type::Bool, at)?
            }
            Truth::Unknown => self.builder.is_null(value, at)?,
        };
        self.builder.negated(test, negated, at)
    }

    fn between(&mut self, parts: [&Expr; 3], at: Position) -> Lowered {
        let mut args = Vec::new();
        for part in parts {
            args.push(self.expression(part)?);
        }
        let (args, _) = self.builder.unified(&args, at)?;
        let le = Op::Compare(Compare::Le);
        let low = self.builder.add(le.clone(), &[args[1], args[0]], Type::Bool, at)?;
        let high = self.builder.add(le, &[args[0], args[2]], Type::Bool, at)?;
        self.builder.add(Op::And, &[low, high], Type::Bool, at)
    }

    fn in_list(&mut self, expr: &Expr, values: &[Expr], at: Position) -> Lowered {
        if values.len() > MAX_IN_VALUES {
            let (found, limit) = (values.len(), MAX_IN_VALUES);
            return Err(Reason::Limit { what: "values of IN", found, limit }.at(at));
        }
        let mut ids = vec![self.expression(expr)?];
        for value in values {
            let id = self.expression(value)?;
            if self.builder.tree.constant(id).is_none() {
                let what = "the values of IN are constants; use OR for others".to_owned();
                return Err(Reason::Constant { what }.at(start(value)));
            }
            ids.push(id);
        }
        let (ids, _) = self.builder.unified(&ids, at)?;
        let constants = ids[1..].iter().filter_map(|id| self.builder.tree.constant(*id));
        let mut values: Vec<Literal> = constants.cloned().collect();
        values.sort();
        values.dedup();
        let has_null = values.first() == Some(&Literal::Null);
        values.retain(|value| *value != Literal::Null);
        let op = Op::InSet { values: values.into(), has_null };
        self.builder.add(op, &ids[..1], Type::Bool, at)
    }

    fn like(&mut self, expr: &Expr, pattern: &Expr, ignore_case: bool) -> Lowered {
        let at = start(pattern);
        let pattern = self.constant_text(pattern, "the pattern of LIKE is a text in quotes")?;
        if pattern.len() > MAX_PATTERN_BYTES {
            let (found, limit) = (pattern.len(), MAX_PATTERN_BYTES);
            return Err(Reason::Limit { what: "bytes of a LIKE pattern", found, limit }.at(at));
        }
        let value = self.expression(expr)?;
        let found = self.builder.ty(value);
        if found != Type::Utf8 && !self.builder.is_null_literal(value) {
            return Err(wrong_type("LIKE", "TEXT", found).at(start(expr)));
        }
        let value = self.builder.widened(value, Type::Utf8, at)?;
        self.builder.add(Op::Like { pattern, ignore_case }, &[value], Type::Bool, at)
    }

    pub(super) fn constant_text(
        &mut self,
        expr: &Expr,
        what: &str,
    ) -> Result<Arc<str>, CheckError> {
        let id = self.expression(expr)?;
        match self.builder.tree.constant(id) {
            Some(Literal::Text(text)) => Ok(text.clone()),
            _ => Err(Reason::Constant { what: what.to_owned() }.at(start(expr))),
        }
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        branches: &[CaseWhen],
        otherwise: Option<&Expr>,
        at: Position,
    ) -> Lowered {
        let operand = operand.map(|operand| self.expression(operand)).transpose()?;
        let (mut conditions, mut results) = (Vec::new(), Vec::new());
        let mut compared_with_others = None;
        for branch in branches {
            let at = start(&branch.condition);
            let condition = self.expression(&branch.condition)?;
            conditions.push(match operand {
                Some(operand) => {
                    if self.builder.tree.constant(condition).is_none() {
                        compared_with_others = Some(operand);
                    }
                    let (sides, _) = self.builder.unified(&[operand, condition], at)?;
                    self.builder.add(Op::Compare(Compare::Eq), &sides, Type::Bool, at)?
                }
                None => self.builder.boolean(condition, "WHEN", at)?,
            });
            results.push(self.expression(&branch.result)?);
        }
        results.push(match otherwise {
            Some(otherwise) => self.expression(otherwise)?,
            None => self.builder.literal(Literal::Null, Type::Bool),
        });
        let (mut results, _) = self.builder.unified(&results, at)?;
        let otherwise = results.pop().expect("there is one for ELSE");
        let mut case = otherwise;
        for (condition, result) in conditions.into_iter().zip(results).rev() {
            case = self.builder.choice(condition, result, case, at)?;
        }
        // Null equals nothing: what comes after WHEN is not needed, and does not fail.
        if let Some(operand) = compared_with_others {
            let is_null = self.builder.is_null(operand, at)?;
            case = self.builder.choice(is_null, otherwise, case, at)?;
        }
        Ok(case)
    }

    fn cast(&mut self, kind: &CastKind, expr: &Expr, to: &DataType, at: Position) -> Lowered {
        let counted = match kind {
            CastKind::Cast | CastKind::DoubleColon => true,
            CastKind::TryCast => false,
            CastKind::SafeCast => return Err(self.not_allowed(at)),
        };
        let Some(ty) = cast_type(to) else {
            let what = format!("CAST to {to}");
            let remedy = "the types are BOOLEAN, INT, BIGINT, REAL and DOUBLE";
            return Err(Reason::NotAllowed { what, remedy }.at(at));
        };
        let value = self.expression(expr)?;
        let found = self.builder.ty(value);
        if self.builder.is_null_literal(value) || found == ty {
            return self.builder.widened(value, ty, at);
        }
        if found == Type::Utf8 {
            return Err(wrong_type("CAST", "numbers and booleans", found).at(start(expr)));
        }
        self.builder.add(Op::Cast { counted }, &[value], ty, at)
    }
}

#[derive(Debug, Clone, Copy)]
enum Truth {
    True,
    False,
    Unknown,
}

fn cast_type(to: &DataType) -> Option<Type> {
    Some(match to {
        DataType::Bool | DataType::Boolean => Type::Bool,
        DataType::Int(None) | DataType::Integer(None) => Type::Int32,
        DataType::BigInt(None) => Type::Int64,
        DataType::Real | DataType::Float(ExactNumberInfo::None) => Type::Float32,
        DataType::Double(ExactNumberInfo::None) | DataType::DoublePrecision => Type::Float64,
        _ => return None,
    })
}

/// A number without point and exponent is an integer, if 64 bits hold it.
fn number(text: &str) -> Option<(Literal, Type)> {
    if let Ok(integer) = text.parse() {
        return Some((Literal::Int64(integer), Type::Int64));
    }
    Some((Literal::double(text.parse().ok()?), Type::Float64))
}

/// The operands of a chain of one operator, in order.
pub(super) fn chain<'e>(whole: &'e Expr, op: &BinaryOperator) -> Vec<&'e Expr> {
    let mut pending = vec![whole];
    let mut operands = Vec::new();
    while let Some(expr) = pending.pop() {
        match expr {
            Expr::BinaryOp { left, op: this, right } if this == op => {
                pending.extend([&**right, left])
            }
            Expr::Nested(inner) => pending.push(inner),
            other => operands.push(other),
        }
    }
    operands
}

/// Where an expression starts, found without recursion: chains nest as deep as they are long.
pub(super) fn start(expr: &Expr) -> Position {
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::BinaryOp { left, .. } => left,
            Expr::Nested(inner)
            | Expr::IsNull(inner)
            | Expr::IsNotNull(inner)
            | Expr::IsTrue(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsFalse(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotUnknown(inner)
            | Expr::UnaryOp { expr: inner, .. }
            | Expr::Between { expr: inner, .. }
            | Expr::In { expr: inner, .. }
            | Expr::Like { expr: inner, .. }
            | Expr::ILike { expr: inner, .. }
            | Expr::Cast { expr: inner, .. }
            | Expr::Ceil { expr: inner, .. }
            | Expr::Floor { expr: inner, .. } => inner,
            Expr::Function(function) => return start_of(&function.name),
            Expr::Case { case_token, .. } => return position(case_token.0.span.start),
            other => return start_of(other),
        }
    }
}
