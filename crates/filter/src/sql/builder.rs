//! Builds the typed tree: common types, implicit casts, constants evaluated at once.

use crate::catalog::Catalog;
use crate::error::{CheckError, Position, Reason};
use crate::kernel::{Value, apply};
use crate::limits::MAX_NODES;
use crate::tree::{Node, NodeId, Op, Tree};
use crate::types::{Literal, Type};

pub(super) struct Builder<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) tree: Tree,
}

impl Builder<'_> {
    pub(super) fn ty(&self, id: NodeId) -> Type {
        self.tree.node(id).ty
    }

    pub(super) fn literal(&mut self, literal: Literal, ty: Type) -> NodeId {
        self.tree.intern(Node { op: Op::Const(literal), args: Box::default(), ty })
    }

    pub(super) fn leaf(&mut self, op: Op, ty: Type) -> NodeId {
        self.tree.intern(Node { op, args: Box::default(), ty })
    }

    /// Adds an operation; one of constants becomes its result.
    pub(super) fn add(
        &mut self,
        op: Op,
        args: &[NodeId],
        ty: Type,
        at: Position,
    ) -> Result<NodeId, CheckError> {
        let node = Node { op, args: args.into(), ty };
        if let Some(result) = self.constant_result(&node) {
            return match result {
                Some(literal) => Ok(self.literal(literal, ty)),
                None => Err(Reason::AlwaysFails.at(at)),
            };
        }
        let id = self.tree.intern(node);
        if self.tree.len() > MAX_NODES {
            let (found, limit) = (self.tree.len(), MAX_NODES);
            return Err(Reason::Limit { what: "expressions in the filter", found, limit }.at(at));
        }
        Ok(id)
    }

    /// The result of an operation of constants, `Some(None)` where it fails.
    fn constant_result(&self, node: &Node) -> Option<Option<Literal>> {
        // What these say can change with the catalog, and light curves have points.
        let depends = matches!(node.op, Op::InRegion(_) | Op::InWatchList(..) | Op::Curve { .. });
        if depends || node.args.is_empty() {
            return None;
        }
        let args: Option<Vec<Value>> = node.args.iter().map(|arg| self.constant(*arg)).collect();
        let value = apply(node, &args?, 1, self.catalog).ok()?;
        Some(value.errors.is_none().then(|| Literal::first(&value.array)))
    }

    fn constant(&self, id: NodeId) -> Option<Value> {
        self.tree.constant(id).map(|literal| Value::constant(literal, self.ty(id)))
    }

    /// NULL takes on any type.
    pub(super) fn is_null_literal(&self, id: NodeId) -> bool {
        self.tree.constant(id) == Some(&Literal::Null)
    }

    /// An expression in a wider type, or NULL in any.
    pub(super) fn widened(
        &mut self,
        id: NodeId,
        ty: Type,
        at: Position,
    ) -> Result<NodeId, CheckError> {
        if self.is_null_literal(id) {
            return Ok(self.literal(Literal::Null, ty));
        }
        if self.ty(id) == ty {
            return Ok(id);
        }
        self.add(Op::Cast { counted: true }, &[id], ty, at)
    }

    /// Expressions in their common type.
    pub(super) fn unified(
        &mut self,
        ids: &[NodeId],
        at: Position,
    ) -> Result<(Vec<NodeId>, Type), CheckError> {
        let mut common: Option<Type> = None;
        for id in ids.iter().filter(|id| !self.is_null_literal(**id)) {
            let ty = self.ty(*id);
            let left = common.unwrap_or(ty);
            let both = left.common(ty);
            common = Some(both.ok_or_else(|| Reason::NoCommonType { left, right: ty }.at(at))?);
        }
        let ty = common.unwrap_or(Type::Bool);
        let ids: Result<_, _> = ids.iter().map(|id| self.widened(*id, ty, at)).collect();
        Ok((ids?, ty))
    }

    /// A boolean, or NULL as one.
    pub(super) fn boolean(
        &mut self,
        id: NodeId,
        what: &str,
        at: Position,
    ) -> Result<NodeId, CheckError> {
        let found = self.ty(id);
        if found != Type::Bool && !self.is_null_literal(id) {
            return Err(wrong_type(what, "BOOLEAN", found).at(at));
        }
        self.widened(id, Type::Bool, at)
    }

    /// A number in a type computed from its own, or NULL.
    pub(super) fn number(
        &mut self,
        id: NodeId,
        what: &str,
        to: impl Fn(Type) -> Type,
        at: Position,
    ) -> Result<NodeId, CheckError> {
        if self.is_null_literal(id) {
            return Ok(self.literal(Literal::Null, to(Type::Float64)));
        }
        let found = self.ty(id);
        if !found.is_number() {
            return Err(wrong_type(what, "numbers", found).at(at));
        }
        self.widened(id, to(found), at)
    }

    pub(super) fn double(
        &mut self,
        id: NodeId,
        what: &str,
        at: Position,
    ) -> Result<NodeId, CheckError> {
        self.number(id, what, |_| Type::Float64, at)
    }

    pub(super) fn not(&mut self, id: NodeId, at: Position) -> Result<NodeId, CheckError> {
        self.add(Op::Not, &[id], Type::Bool, at)
    }

    pub(super) fn negated(
        &mut self,
        id: NodeId,
        negated: bool,
        at: Position,
    ) -> Result<NodeId, CheckError> {
        if negated { self.not(id, at) } else { Ok(id) }
    }

    pub(super) fn is_null(&mut self, id: NodeId, at: Position) -> Result<NodeId, CheckError> {
        self.add(Op::IsNull, &[id], Type::Bool, at)
    }

    /// CASE WHEN condition THEN then ELSE otherwise END, of arguments of one type.
    pub(super) fn choice(
        &mut self,
        condition: NodeId,
        then: NodeId,
        otherwise: NodeId,
        at: Position,
    ) -> Result<NodeId, CheckError> {
        self.add(Op::If, &[condition, then, otherwise], self.ty(then), at)
    }
}

pub(super) fn wrong_type(what: &str, takes: &str, found: Type) -> Reason {
    Reason::Type { what: what.to_owned(), takes: takes.to_owned(), found }
}
