//! Functions: their names, arguments and types.

use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments};

use super::builder::wrong_type;
use super::expression::{Lowering, Scope, start};
use super::start_of;
use crate::catalog::Named;
use crate::error::{CheckError, Position, Reason, nearest};
use crate::limits::MAX_WATCH_RADIUS_ARCSEC;
use crate::tree::{Compare, Curve, Math, NodeId, Op};
use crate::types::{Literal, Type};
use crate::watch_list::is_radius;

/// A function of the language of filters, for documents and help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// Its name; filters may write it in any case.
    pub name: &'static str,
    /// A call of it, with the names of its arguments.
    pub usage: &'static str,
    /// What it returns, with units.
    pub meaning: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of one number, in its float type.
    Math(Math),
    /// `abs` and `round`, which leave integers integers.
    SameType(Math),
    Power,
    Atan2,
    IsNan,
    Coalesce,
    NullIf,
    Greatest,
    Least,
    Magnitude,
    MagnitudeError,
    Distance,
    SeparationDeg,
    Cone,
    InMoc,
    InWatchList,
    Curve(Curve),
}

const fn function(
    name: &'static str,
    usage: &'static str,
    meaning: &'static str,
    kind: Kind,
) -> Function {
    Function { name, usage, meaning, kind }
}

/// All functions, those of one sort beside each other.
// tidy: allow(line-width): a table; a function a line.
#[rustfmt::skip]
pub const FUNCTIONS: &[Function] = &[
    function("cone", "cone(ra, dec, ra0, dec0, radius_arcsec)", "whether a position (degrees) lies within a radius of another", Kind::Cone),
    function("angular_distance", "angular_distance(ra1, dec1, ra2, dec2)", "arcseconds between two positions (degrees)", Kind::Distance),
    function("scisql_angsep", "scisql_angSep(ra1, dec1, ra2, dec2)", "degrees between two positions (degrees)", Kind::SeparationDeg),
    function("in_moc", "in_moc('region')", "whether the alert lies in a region", Kind::InMoc),
    function("in_watchlist", "in_watchlist('list') or in_watchlist('list', radius_arcsec)", "whether the alert is near a position of a watch list", Kind::InWatchList),
    function("magnitude", "magnitude(flux_nJy)", "AB magnitude; null unless the flux is above 0", Kind::Magnitude),
    function("magnitude_error", "magnitude_error(flux_nJy, flux_error_nJy)", "error of the AB magnitude; null unless the flux is above 0", Kind::MagnitudeError),
    function("scisql_nanojanskytoabmag", "scisql_nanojanskyToAbMag(flux_nJy)", "magnitude, as Rubin's databases call it", Kind::Magnitude),
    function("scisql_nanojanskytoabmagsigma", "scisql_nanojanskyToAbMagSigma(flux_nJy, flux_error_nJy)", "magnitude_error, as Rubin's databases call it", Kind::MagnitudeError),
    function("last", "last(value) or last(value, days)", "the value of the latest point", Kind::Curve(Curve::Last)),
    function("first", "first(value) or first(value, days)", "the value of the earliest point", Kind::Curve(Curve::First)),
    function("max", "max(value) or max(value, days)", "the greatest value of the points", Kind::Curve(Curve::Max)),
    function("min", "min(value) or min(value, days)", "the least value of the points", Kind::Curve(Curve::Min)),
    function("mean", "mean(value) or mean(value, days)", "the mean of the points", Kind::Curve(Curve::Mean)),
    function("slope", "slope(value) or slope(value, days)", "the slope a day of the least-squares line; null below two points", Kind::Curve(Curve::Slope)),
    function("count_if", "count_if(condition) or count_if(condition, days)", "the number of points for which a condition is true", Kind::Curve(Curve::CountIf)),
    function("abs", "abs(x)", "the absolute value", Kind::SameType(Math::Abs)),
    function("round", "round(x)", "the nearest whole number, halves away from 0", Kind::SameType(Math::Round)),
    function("floor", "floor(x)", "the greatest whole number not above", Kind::Math(Math::Floor)),
    function("ceil", "ceil(x)", "the least whole number not below", Kind::Math(Math::Ceil)),
    function("sqrt", "sqrt(x)", "the square root; an error below 0", Kind::Math(Math::Sqrt)),
    function("exp", "exp(x)", "e to a power", Kind::Math(Math::Exp)),
    function("ln", "ln(x)", "the natural logarithm", Kind::Math(Math::Ln)),
    function("log10", "log10(x)", "the decimal logarithm", Kind::Math(Math::Log10)),
    function("log2", "log2(x)", "the binary logarithm", Kind::Math(Math::Log2)),
    function("power", "power(base, exponent)", "a power, a DOUBLE; 0 to a negative power is an error", Kind::Power),
    function("pow", "pow(base, exponent)", "power", Kind::Power),
    function("sin", "sin(x)", "the sine of radians", Kind::Math(Math::Sin)),
    function("cos", "cos(x)", "the cosine of radians", Kind::Math(Math::Cos)),
    function("tan", "tan(x)", "the tangent of radians", Kind::Math(Math::Tan)),
    function("asin", "asin(x)", "the arc sine, in radians", Kind::Math(Math::Asin)),
    function("acos", "acos(x)", "the arc cosine, in radians", Kind::Math(Math::Acos)),
    function("atan", "atan(x)", "the arc tangent, in radians", Kind::Math(Math::Atan)),
    function("atan2", "atan2(y, x)", "the angle of a point, in radians", Kind::Atan2),
    function("radians", "radians(x)", "degrees as radians", Kind::Math(Math::Radians)),
    function("degrees", "degrees(x)", "radians as degrees", Kind::Math(Math::Degrees)),
    function("isnan", "isnan(x)", "whether a number is NaN", Kind::IsNan),
    function("coalesce", "coalesce(a, b, …)", "the first argument that is not null", Kind::Coalesce),
    function("nullif", "nullif(a, b)", "null where both are equal, else the first", Kind::NullIf),
    function("greatest", "greatest(a, b, …)", "the greatest argument; nulls do not count", Kind::Greatest),
    function("least", "least(a, b, …)", "the least argument; nulls do not count", Kind::Least),
];

fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name.eq_ignore_ascii_case(name))
}

type Lowered = Result<NodeId, CheckError>;

impl Lowering<'_> {
    pub(super) fn function(&mut self, call: &sqlparser::ast::Function) -> Lowered {
        // Named one by one: what the parser learns to read is not accepted by accident.
        let sqlparser::ast::Function {
            name,
            uses_odbc_syntax,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over,
        } = call;
        let ident = match name.0.as_slice() {
            [part] => part.as_ident().filter(|ident| ident.quote_style.is_none()),
            _ => None,
        };
        let at = start_of(name);
        let is_plain = !uses_odbc_syntax
            && *parameters == FunctionArguments::None
            && within_group.is_empty()
            && filter.is_none()
            && null_treatment.is_none()
            && over.is_none();
        let (Some(ident), true, FunctionArguments::List(list)) = (ident, is_plain, args) else {
            return Err(self.not_allowed(at));
        };
        if find(&ident.value).is_none() {
            let name = ident.value.clone();
            let near = nearest(&name, FUNCTIONS.iter().map(|function| function.name));
            return Err(Reason::UnknownFunction { name, near }.at(at));
        }
        let args = plain_arguments(list).ok_or_else(|| self.not_allowed(at))?;
        self.call(&ident.value, &args, at)
    }

    /// Calls a function of the table.
    pub(super) fn call(&mut self, name: &str, args: &[&Expr], at: Position) -> Lowered {
        let function = find(name).ok_or_else(|| self.not_allowed(at))?;
        let wrong_count = || Reason::Arguments { usage: function.usage }.at(at);
        let (least, most) = counts(function.kind);
        if args.len() < least || args.len() > most {
            return Err(wrong_count());
        }
        match function.kind {
            Kind::Curve(curve) => self.curve(function, curve, args, at),
            Kind::InMoc => self.in_moc(args, at),
            Kind::InWatchList => self.in_watch_list(args, at),
            kind => {
                let mut values = Vec::new();
                for arg in args {
                    values.push(self.expression(arg)?);
                }
                self.of_values(kind, function, &values, at)
            }
        }
    }

    fn of_values(
        &mut self,
        kind: Kind,
        function: &Function,
        values: &[NodeId],
        at: Position,
    ) -> Lowered {
        let name = function.name;
        let builder = &mut self.builder;
        match kind {
            Kind::Math(math) => {
                let value = builder.number(values[0], name, Type::to_float, at)?;
                builder.add(Op::Math(math), &[value], builder.ty(value), at)
            }
            Kind::SameType(math) => {
                let value = builder.number(values[0], name, |ty| ty, at)?;
                let ty = builder.ty(value);
                if ty.is_integer() && math == Math::Round {
                    return Ok(value);
                }
                builder.add(Op::Math(math), &[value], ty, at)
            }
            Kind::IsNan => {
                let value = builder.number(values[0], name, |ty| ty, at)?;
                builder.add(Op::IsNan, &[value], Type::Bool, at)
            }
            Kind::Power => self.doubles(Op::Power, name, values, at),
            Kind::Atan2 => {
                let is_real = |id: &NodeId| builder.ty(*id) == Type::Float32;
                let to = if values.iter().all(is_real) { Type::Float32 } else { Type::Float64 };
                let y = builder.number(values[0], name, |_| to, at)?;
                let x = builder.number(values[1], name, |_| to, at)?;
                builder.add(Op::Atan2, &[y, x], to, at)
            }
            Kind::Magnitude => self.doubles(Op::Magnitude, name, values, at),
            Kind::MagnitudeError => self.doubles(Op::MagnitudeError, name, values, at),
            Kind::Distance => self.doubles(Op::Distance, name, values, at),
            Kind::SeparationDeg => {
                let arcsec = self.doubles(Op::Distance, name, values, at)?;
                let per_degree = self.builder.literal(Literal::double(3600.0), Type::Float64);
                let op = Op::Arith(crate::tree::Arith::Div);
                self.builder.add(op, &[arcsec, per_degree], Type::Float64, at)
            }
            Kind::Cone => {
                let args = self.all_doubles(name, values, at)?;
                self.builder.add(Op::Cone, &args, Type::Bool, at)
            }
            Kind::Coalesce => self.coalesce(values, at),
            Kind::NullIf => self.null_if(values, at),
            Kind::Greatest => self.extreme(values, at, |a, b| [a, b]),
            Kind::Least => self.extreme(values, at, |a, b| [b, a]),
            Kind::InMoc | Kind::InWatchList | Kind::Curve(_) => Err(self.not_allowed(at)),
        }
    }

    fn all_doubles(
        &mut self,
        name: &str,
        values: &[NodeId],
        at: Position,
    ) -> Result<Vec<NodeId>, CheckError> {
        values.iter().map(|value| self.builder.double(*value, name, at)).collect()
    }

    fn doubles(&mut self, op: Op, name: &str, values: &[NodeId], at: Position) -> Lowered {
        let args = self.all_doubles(name, values, at)?;
        self.builder.add(op, &args, Type::Float64, at)
    }

    fn coalesce(&mut self, values: &[NodeId], at: Position) -> Lowered {
        let (mut values, _) = self.builder.unified(values, at)?;
        let mut result = values.pop().expect("there is one at least");
        for value in values.into_iter().rev() {
            let is_null = self.builder.is_null(value, at)?;
            result = self.builder.choice(is_null, result, value, at)?;
        }
        Ok(result)
    }

    fn null_if(&mut self, values: &[NodeId], at: Position) -> Lowered {
        let (values, ty) = self.builder.unified(values, at)?;
        let equal = self.builder.add(Op::Compare(Compare::Eq), &values, Type::Bool, at)?;
        let null = self.builder.literal(Literal::Null, ty);
        self.builder.choice(equal, null, values[0], at)
    }

    /// The argument that is above (or below) the others.
    fn extreme(
        &mut self,
        values: &[NodeId],
        at: Position,
        in_order: fn(NodeId, NodeId) -> [NodeId; 2],
    ) -> Lowered {
        let (values, _) = self.builder.unified(values, at)?;
        let mut best = values[0];
        for value in &values[1..] {
            let builder = &mut self.builder;
            let is_better = Op::Compare(Compare::Lt);
            let is_better = builder.add(is_better, &in_order(best, *value), Type::Bool, at)?;
            let of_both = builder.choice(is_better, *value, best, at)?;
            let (no_value, no_best) = (builder.is_null(*value, at)?, builder.is_null(best, at)?);
            let unless = builder.choice(no_best, *value, of_both, at)?;
            best = builder.choice(no_value, best, unless, at)?;
        }
        Ok(best)
    }

    /// The alert's position, by the catalog's layout.
    fn alert_position(&mut self, at: Position) -> Result<[NodeId; 2], CheckError> {
        let layout = self.builder.catalog.layout();
        let names = [layout.ra.clone(), layout.dec.clone()];
        let [ra, dec] = names.map(|name| match self.builder.catalog.named(&name) {
            Some(Named::Flat(index)) => {
                let id = self.flat(index, at)?;
                self.builder.double(id, &name, at)
            }
            _ => Err(Reason::UnknownColumn { name, near: None }.at(at)),
        });
        Ok([ra?, dec?])
    }

    fn in_moc(&mut self, args: &[&Expr], at: Position) -> Lowered {
        let name = self.constant_text(args[0], "a region's name is a text in quotes")?;
        if self.builder.catalog.region(&name).is_none() {
            let near = nearest(&name, self.builder.catalog.region_names());
            let reason = Reason::UnknownName { kind: "region", name: name.to_string(), near };
            return Err(reason.at(start(args[0])));
        }
        let position = self.alert_position(at)?;
        self.builder.add(Op::InRegion(name), &position, Type::Bool, at)
    }

    fn in_watch_list(&mut self, args: &[&Expr], at: Position) -> Lowered {
        let name = self.constant_text(args[0], "a watch list's name is a text in quotes")?;
        if self.builder.catalog.watch_list(&name).is_none() {
            let near = nearest(&name, self.builder.catalog.watch_list_names());
            let reason = Reason::UnknownName { kind: "watch list", name: name.to_string(), near };
            return Err(reason.at(start(args[0])));
        }
        let what = format!("a radius is a number of arcsec, at most {MAX_WATCH_RADIUS_ARCSEC}");
        let radius = self.constant_double(args.get(1), &what, is_radius)?;
        let position = self.alert_position(at)?;
        self.builder.add(Op::InWatchList(name, radius), &position, Type::Bool, at)
    }

    /// The bits of a constant argument, if it is given.
    fn constant_double(
        &mut self,
        arg: Option<&&Expr>,
        what: &str,
        is_valid: fn(f64) -> bool,
    ) -> Result<Option<u64>, CheckError> {
        let Some(arg) = arg else { return Ok(None) };
        let at = start(arg);
        let value = self.expression(arg)?;
        let value = self.builder.double(value, what, at)?;
        match self.builder.tree.constant(value) {
            Some(Literal::Float64(bits)) if is_valid(f64::from_bits(*bits)) => Ok(Some(*bits)),
            _ => Err(Reason::Constant { what: what.to_owned() }.at(at)),
        }
    }

    fn curve(
        &mut self,
        function: &Function,
        curve: Curve,
        args: &[&Expr],
        at: Position,
    ) -> Lowered {
        if self.scope != Scope::Alert {
            let name = function.name.to_owned();
            let remedy = "it cannot stand within another light-curve function";
            return Err(Reason::History { name, remedy }.at(at));
        }
        let what = "a window is a constant number of days above 0";
        let days = self.constant_double(args.get(1), what, |days| days > 0.0)?;
        self.scope = Scope::Points(None);
        let value = self.expression(args[0]);
        let scope = std::mem::replace(&mut self.scope, Scope::Alert);
        let value = value?;
        let Scope::Points(Some(history)) = scope else {
            let what = format!("{} takes a field of a history column", function.name);
            return Err(Reason::Constant { what }.at(start(args[0])));
        };
        self.check_times(history, at)?;
        let (value, ty) = self.curve_type(function, curve, value, at)?;
        self.builder.add(Op::Curve { function: curve, history, days }, &[value], ty, at)
    }

    /// The argument and the result of a light-curve function.
    fn curve_type(
        &mut self,
        function: &Function,
        curve: Curve,
        value: NodeId,
        at: Position,
    ) -> Result<(NodeId, Type), CheckError> {
        let (name, ty) = (function.name, self.builder.ty(value));
        match curve {
            Curve::CountIf => Ok((self.builder.boolean(value, name, at)?, Type::Int64)),
            Curve::First | Curve::Last => Ok((value, ty)),
            Curve::Max | Curve::Min if ty.is_number() => Ok((value, ty)),
            Curve::Max | Curve::Min => Err(wrong_type(name, "numbers", ty).at(at)),
            Curve::Mean | Curve::Slope => {
                Ok((self.builder.double(value, name, at)?, Type::Float64))
            }
        }
    }

    /// Points of a history and the alert need times, so that none of the future is used.
    fn check_times(&mut self, history: usize, at: Position) -> Result<(), CheckError> {
        let catalog = self.builder.catalog;
        let (layout, column) = (catalog.layout(), catalog.history(history));
        let missing = |name: String| Reason::UnknownColumn { name, near: None }.at(at);
        if column.time.is_none() {
            return Err(missing(format!("{}.{}", column.name, layout.history_time)));
        }
        match catalog.named(&layout.time) {
            Some(Named::Flat(index)) if catalog.flat(index).ty == Some(Type::Float64) => Ok(()),
            _ => Err(missing(layout.time.clone())),
        }
    }
}

fn counts(kind: Kind) -> (usize, usize) {
    match kind {
        Kind::Math(_) | Kind::SameType(_) | Kind::IsNan | Kind::Magnitude | Kind::InMoc => (1, 1),
        Kind::InWatchList | Kind::Curve(_) => (1, 2),
        Kind::Power | Kind::Atan2 | Kind::NullIf | Kind::MagnitudeError => (2, 2),
        Kind::Distance | Kind::SeparationDeg => (4, 4),
        Kind::Cone => (5, 5),
        Kind::Coalesce | Kind::Greatest | Kind::Least => (1, usize::MAX),
    }
}

/// The arguments, if they are just expressions.
fn plain_arguments(list: &FunctionArgumentList) -> Option<Vec<&Expr>> {
    let FunctionArgumentList { duplicate_treatment: None, args, clauses } = list else {
        return None;
    };
    let plain = |arg| match arg {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    if clauses.is_empty() { args.iter().map(plain).collect() } else { None }
}
