//! The query around the expressions: SELECT columns FROM alerts WHERE … ORDER BY …, no more.

use sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, OrderBy, OrderByExpr, OrderByKind, OrderBySort,
    Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins, Value,
    WildcardAdditionalOptions,
};

use super::builder::{Builder, wrong_type};
use super::expression::{Lowering, chain, start};
use super::{START, Words, parse, start_of};
use crate::catalog::{Catalog, Named};
use crate::error::{CheckError, Reason};
use crate::limits::{MAX_ORDER_KEYS, MAX_SELECT_COLUMNS};
use crate::tree::{NodeId, Tree};

/// A column of the results.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SelectColumn {
    pub(crate) name: String,
    pub(crate) source: Source,
}

/// Where a column of the results comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Source {
    Computed(NodeId),
    /// A flat column of any type, by its index, as it is.
    Column(usize),
}

/// A key of ORDER BY: a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct OrderKey {
    pub(crate) node: NodeId,
    pub(crate) is_descending: bool,
}

/// A filter's text, checked.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) tree: Tree,
    pub(crate) conjuncts: Vec<NodeId>,
    /// `None` for `*`, the whole packet.
    pub(crate) select: Option<Vec<SelectColumn>>,
    pub(crate) order: Vec<OrderKey>,
    /// The text of ORDER BY, with uniform spaces and keywords.
    pub(crate) ranking: Option<String>,
}

/// Parses and checks a filter's text.
pub(crate) fn check(text: &str, catalog: &Catalog) -> Result<Parts, CheckError> {
    let (query, words) = parse(text)?;
    let (select, order_by) = plain_query(&query, &words)?;
    let builder = Builder { catalog, tree: Tree::default() };
    let mut lowering = Lowering::new(builder, &words);
    let condition = select.selection.as_ref().ok_or_else(|| {
        let what = "a query without WHERE".to_owned();
        Reason::NotAllowed { what, remedy: "WHERE TRUE matches every alert" }.at(START)
    })?;
    let mut conjuncts = Vec::new();
    for part in chain(condition, &BinaryOperator::And) {
        let value = lowering.expression(part)?;
        conjuncts.push(lowering.builder.boolean(value, "WHERE", start(part))?);
    }
    let columns = select_columns(&mut lowering, select)?;
    let order_by = order_by.unwrap_or_default();
    let mut order = Vec::new();
    let mut texts = Vec::new();
    for item in order_by {
        order.push(order_key(&mut lowering, item)?);
        texts.push(item.to_string());
    }
    let ranking = (!texts.is_empty()).then(|| texts.join(", "));
    Ok(Parts { tree: lowering.builder.tree, conjuncts, select: columns, order, ranking })
}

fn refuse_clauses(clauses: &[(&'static str, bool)], words: &Words) -> Result<(), CheckError> {
    let Some((word, _)) = clauses.iter().find(|(_, is_there)| *is_there) else { return Ok(()) };
    let remedy = match *word {
        "LIMIT" | "OFFSET" | "FETCH" | "TOP" => "each user gets at most 20 alerts a visit",
        "GROUP" | "HAVING" => "count_if, mean and others summarise an alert's history",
        "DISTINCT" => "each alert is published once",
        _ => "write SELECT columns FROM alerts WHERE … [ORDER BY …]",
    };
    Err(Reason::NotAllowed { what: (*word).to_owned(), remedy }.at(words.place(word)))
}

/// The parts that may be there, and nothing else. Every part is named, so that a new one of the
/// parser is an error of ours at compile time.
fn plain_query<'q>(
    query: &'q Query,
    words: &Words,
) -> Result<(&'q Select, Option<&'q [OrderByExpr]>), CheckError> {
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    refuse_clauses(
        &[
            ("WITH", with.is_some()),
            ("LIMIT", limit_clause.is_some()),
            ("FETCH", fetch.is_some()),
            ("FOR", !locks.is_empty() || for_clause.is_some()),
            ("SETTINGS", settings.is_some()),
            ("FORMAT", format_clause.is_some()),
            ("|>", !pipe_operators.is_empty()),
        ],
        words,
    )?;
    let order_by = order_by.as_ref().map(|order| order_keys(order, words)).transpose()?;
    let select = match body.as_ref() {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { op, .. } => {
            let word = op.to_string();
            let remedy = "activate two filters";
            let at = words.place(&word);
            return Err(Reason::NotAllowed { what: word, remedy }.at(at));
        }
        _ => {
            let remedy = "write SELECT columns FROM alerts WHERE … [ORDER BY …]";
            let what = "a query of another form".to_owned();
            return Err(Reason::NotAllowed { what, remedy }.at(START));
        }
    };
    plain_select(select, words)?;
    Ok((select, order_by))
}

fn plain_select(select: &Select, words: &Words) -> Result<(), CheckError> {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor: _,
    } = select;
    let has_groups = match group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, modifiers) => !keys.is_empty() || !modifiers.is_empty(),
    };
    refuse_clauses(
        &[
            ("SELECT", !optimizer_hints.is_empty() || select_modifiers.is_some()),
            ("DISTINCT", distinct.is_some()),
            ("TOP", top.is_some()),
            ("EXCLUDE", exclude.is_some()),
            ("INTO", into.is_some()),
            ("LATERAL", !lateral_views.is_empty()),
            ("PREWHERE", prewhere.is_some()),
            ("CONNECT", !connect_by.is_empty()),
            ("GROUP", has_groups),
            ("CLUSTER", !cluster_by.is_empty()),
            ("DISTRIBUTE", !distribute_by.is_empty()),
            ("SORT", !sort_by.is_empty()),
            ("HAVING", having.is_some()),
            ("WINDOW", !named_window.is_empty()),
            ("QUALIFY", qualify.is_some()),
            ("AS", value_table_mode.is_some()),
        ],
        words,
    )?;
    plain_from(from, words)
}

fn plain_from(from: &[TableWithJoins], words: &Words) -> Result<(), CheckError> {
    let remedy = "the only table is alerts";
    let refuse = |what: &str, at| Err(Reason::NotAllowed { what: what.to_owned(), remedy }.at(at));
    let [TableWithJoins { relation, joins }] = from else {
        return refuse("another FROM than one table", words.place("FROM"));
    };
    if !joins.is_empty() {
        return refuse("JOIN", words.place("JOIN"));
    }
    let TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints,
        version: None,
        with_ordinality: false,
        partitions,
        json_path: None,
        sample: None,
        index_directives,
        inheritance: None,
    } = relation
    else {
        return refuse("another FROM than a table", words.place("FROM"));
    };
    if !(with_hints.is_empty() && partitions.is_empty() && index_directives.is_empty()) {
        return refuse("another FROM than a table", words.place("FROM"));
    }
    if !name.to_string().eq_ignore_ascii_case("alerts") {
        return refuse(&format!("the table {name}"), start_of(name));
    }
    Ok(())
}

fn order_keys<'q>(order: &'q OrderBy, words: &Words) -> Result<&'q [OrderByExpr], CheckError> {
    let at = words.place("ORDER");
    let remedy = "write ORDER BY expression [ASC|DESC], …";
    let OrderBy { kind: OrderByKind::Expressions(keys), interpolate: None } = order else {
        return Err(Reason::NotAllowed { what: "this ORDER BY".to_owned(), remedy }.at(at));
    };
    if keys.len() > MAX_ORDER_KEYS {
        let (found, limit) = (keys.len(), MAX_ORDER_KEYS);
        return Err(Reason::Limit { what: "expressions of ORDER BY", found, limit }.at(at));
    }
    Ok(keys)
}

fn order_key(lowering: &mut Lowering<'_>, key: &OrderByExpr) -> Result<OrderKey, CheckError> {
    let OrderByExpr { expr, options, with_fill } = key;
    let at = start(expr);
    let is_descending = match &options.sort {
        None | Some(OrderBySort::Asc) => false,
        Some(OrderBySort::Desc) => true,
        Some(OrderBySort::Using(_)) => return Err(lowering.not_allowed(at)),
    };
    if options.nulls_first.is_some() || with_fill.is_some() {
        let what = "NULLS FIRST or LAST".to_owned();
        let remedy = "alerts whose key is null or NaN always come last";
        return Err(Reason::NotAllowed { what, remedy }.at(at));
    }
    let node = lowering.expression(expr)?;
    let found = lowering.builder.ty(node);
    if !found.is_number() || lowering.builder.tree.constant(node).is_some() {
        let takes = "numbers that differ by alert";
        return Err(wrong_type("ORDER BY", takes, found).at(at));
    }
    Ok(OrderKey { node, is_descending })
}

fn select_columns(
    lowering: &mut Lowering<'_>,
    select: &Select,
) -> Result<Option<Vec<SelectColumn>>, CheckError> {
    if let [SelectItem::Wildcard(options)] = select.projection.as_slice() {
        let WildcardAdditionalOptions {
            wildcard_token,
            opt_ilike: None,
            opt_exclude: None,
            opt_except: None,
            opt_replace: None,
            opt_rename: None,
            opt_alias: None,
        } = options
        else {
            return Err(lowering.not_allowed(start_of(options)));
        };
        let _ = wildcard_token;
        return Ok(None);
    }
    if select.projection.len() > MAX_SELECT_COLUMNS {
        let (found, limit) = (select.projection.len(), MAX_SELECT_COLUMNS);
        return Err(Reason::Limit { what: "columns of SELECT", found, limit }.at(START));
    }
    let mut columns: Vec<SelectColumn> = Vec::new();
    for item in &select.projection {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            _ => {
                let remedy = "* stands alone: it is the whole packet";
                let what = "this item of SELECT".to_owned();
                return Err(Reason::NotAllowed { what, remedy }.at(lowering.words.place("*")));
            }
        };
        let column = select_column(lowering, expr, alias)?;
        if columns.iter().any(|other| other.name == column.name) {
            let what = format!("two columns are called {}; name one with AS", column.name);
            return Err(Reason::Constant { what }.at(start(expr)));
        }
        columns.push(column);
    }
    Ok(Some(columns))
}

fn select_column(
    lowering: &mut Lowering<'_>,
    expr: &Expr,
    alias: Option<&Ident>,
) -> Result<SelectColumn, CheckError> {
    let path = match expr {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        Expr::CompoundIdentifier(parts) => {
            Some(parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join("."))
        }
        _ => None,
    };
    let alias = alias.map(|alias| alias.value.clone());
    if let Some(path) = &path
        && let Some(Named::Flat(index)) = lowering.builder.catalog.named(path)
    {
        let name = alias.unwrap_or_else(|| path.clone());
        return Ok(SelectColumn { name, source: Source::Column(index) });
    }
    let node = lowering.expression(expr)?;
    let Some(name) = alias.or(path) else {
        let what = "a computed column needs a name: write AS name".to_owned();
        return Err(Reason::Constant { what }.at(start(expr)));
    };
    if matches!(expr, Expr::Value(literal) if literal.value == Value::Null) {
        let what = "NULL has no type: write CAST(NULL AS …)".to_owned();
        return Err(Reason::Constant { what }.at(start(expr)));
    }
    Ok(SelectColumn { name, source: Source::Computed(node) })
}
