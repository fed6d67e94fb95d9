//! Alerts to columns, while schemas come and go.

use helio_alerts::reader::Alert;
use helio_bus::{Bus, TopicName};
use helio_columns::{Decoder, Layout, PushError, Reason};
use helio_core::Schema;
use helio_core::projection::ShapeError;
use pyo3::prelude::*;

use super::batch::{Batch, Row};
use super::capsules::fault;
use crate::errors;

/// A packet that no batch has: partition, offset, the alert, the cause, the reason.
type Rejected = (u32, u64, Option<i64>, &'static str, String);

/// The columns of a subscription.
pub(super) struct Columns {
    paths: Vec<String>,
    /// Made from the topic's schemas, or the first packet's.
    decoder: Option<Decoder>,
}

fn no_columns(error: &ShapeError) -> PyErr {
    errors::raise("SchemaError", &error.to_string())
}

impl Columns {
    /// Finds the columns in the schemas that a topic has so far.
    pub(super) fn open(bus: &Bus, topic: &str, paths: Vec<String>) -> PyResult<Self> {
        let name = TopicName::new(topic);
        let name = name.map_err(|error| errors::raise("NameRefused", &error.to_string()))?;
        let ids = bus.schemas_of(&name).map_err(|error| errors::transport(&error))?;
        let mut schemas = Vec::new();
        for id in ids.unwrap_or_default() {
            // A schema whose text is lost spoils its packets only.
            if let Ok(text) = bus.schema_text(id)
                && let Ok(schema) = Schema::parse(&text.text)
            {
                schemas.push(schema);
            }
        }
        let decoder = match &schemas[..] {
            [] => None,
            schemas => {
                let layout = Layout::new(schemas, &paths).map_err(|error| no_columns(&error))?;
                Some(Decoder::new(&layout))
            }
        };
        Ok(Self { paths, decoder })
    }

    /// Finds the columns in the schema of the first alert, unless they are known.
    pub(super) fn prepare(&mut self, alerts: &[Alert]) -> PyResult<()> {
        if let (None, Some(alert)) = (&self.decoder, alerts.first()) {
            let schema = std::slice::from_ref(alert.layout.schema());
            let layout = Layout::new(schema, &self.paths).map_err(|error| no_columns(&error))?;
            self.decoder = Some(Decoder::new(&layout));
        }
        Ok(())
    }

    /// The batches of alerts, for which the columns are [prepared](Self::prepare): one, unless a
    /// schema widens the columns or a column is full.
    pub(super) fn batches(&mut self, alerts: Vec<Alert>) -> PyResult<(Vec<Batch>, Vec<Rejected>)> {
        let (mut batches, mut rejected) = (Vec::new(), Vec::new());
        let mut pending: Vec<Alert> = Vec::new();
        for alert in alerts {
            let schema = alert.layout.schema();
            match self.push(schema, &alert) {
                Ok(()) => {}
                Err(PushError::Full) => {
                    self.finish(&mut pending, &mut batches, &mut rejected)?;
                    // A column that is empty takes it, or rejects it by name.
                    drop(self.push(schema, &alert));
                }
                Err(PushError::Rejected(Reason::Shape(_))) => {
                    // Of a wider type: the columns of the next batch take it.
                    let layout = self.decoder.as_ref().map(|decoder| decoder.layout().clone());
                    if let Some(Ok(layout)) = layout.map(|layout| layout.with(schema)) {
                        // It is not pending yet, and so not reported as rejected.
                        self.finish(&mut pending, &mut batches, &mut rejected)?;
                        self.decoder = Some(Decoder::new(&layout));
                        drop(self.push(schema, &alert));
                    }
                }
                Err(PushError::Rejected(_)) => {}
            }
            pending.push(alert);
        }
        self.finish(&mut pending, &mut batches, &mut rejected)?;
        Ok((batches, rejected))
    }

    fn push(&mut self, schema: &Schema, alert: &Alert) -> Result<(), PushError> {
        match &mut self.decoder {
            Some(decoder) => decoder.push(schema, &alert.datum),
            None => Ok(()),
        }
    }

    /// Ends a batch of the pending alerts.
    fn finish(
        &mut self,
        pending: &mut Vec<Alert>,
        batches: &mut Vec<Batch>,
        rejected: &mut Vec<Rejected>,
    ) -> PyResult<()> {
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let batch = decoder.finish().map_err(|error| fault(&error))?;
        for one in &batch.rejected {
            if let Some(alert) = pending.get(one.position) {
                let (at, reason) = (alert.at, one.reason.to_string());
                rejected.push((at.partition, at.offset, Some(alert.id), "columns", reason));
            }
        }
        let rows = batch.positions.iter().filter_map(|at| pending.get(*at)).map(Row::of).collect();
        if batch.records.num_rows() > 0 {
            batches.push(Batch::new(batch.records, rows));
        }
        pending.clear();
        Ok(())
    }
}
