//! Distances, cones, regions and watch lists; positions in degrees.

use std::sync::Arc;

use arrow_array::{BooleanArray, Float64Array};
use arrow_buffer::BooleanBuffer;

use super::{Value, nulls};
use crate::sky::{Region, angular_distance_arcsec, is_in_cone};
use crate::watch_list::LiveWatchList;

pub(super) fn distance(args: &[Value], rows: usize) -> Value {
    let [ra1, dec1, ra2, dec2] = [0, 1, 2, 3].map(|arg| args[arg].doubles());
    let at = |row| angular_distance_arcsec(ra1.at(row), dec1.at(row), ra2.at(row), dec2.at(row));
    Value::each(Arc::new(Float64Array::new((0..rows).map(at).collect(), nulls(args, rows))))
}

pub(super) fn cone(args: &[Value], rows: usize) -> Value {
    let [ra, dec, ra0, dec0, radius] = [0, 1, 2, 3, 4].map(|arg| args[arg].doubles());
    booleans(args, rows, |row| {
        is_in_cone([ra.at(row), dec.at(row)], [ra0.at(row), dec0.at(row)], radius.at(row))
    })
}

pub(super) fn in_region(args: &[Value], rows: usize, region: Option<&Arc<Region>>) -> Value {
    let (ra, dec) = (args[0].doubles(), args[1].doubles());
    booleans(args, rows, |row| region.is_some_and(|r| r.contains(ra.at(row), dec.at(row))))
}

pub(super) fn in_watch_list(
    args: &[Value],
    rows: usize,
    list: Option<&Arc<LiveWatchList>>,
    radius_arcsec: Option<f64>,
) -> Value {
    let (ra, dec) = (args[0].doubles(), args[1].doubles());
    let list = list.map(|live| live.current());
    booleans(args, rows, |row| {
        list.as_ref().is_some_and(|list| {
            let radius = radius_arcsec.unwrap_or_else(|| list.radius_arcsec());
            list.is_near(ra.at(row), dec.at(row), radius)
        })
    })
}

fn booleans(args: &[Value], rows: usize, is: impl FnMut(usize) -> bool) -> Value {
    let bits = BooleanBuffer::collect_bool(rows, is);
    Value::each(Arc::new(BooleanArray::new(bits, nulls(args, rows))))
}
