//! A user's filter: a text, its worker, and the worker's restarts.

use std::os::fd::AsFd as _;
use std::time::Instant;

use crate::batch::Batch;
use crate::error::{Ended, FilterError, StartError};
use crate::limits::{Limits, Restarts, Usage};
use crate::worker::{Answer, Launch, Worker};

/// The longest text of a filter: it travels as one message.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A filter in Python, which selects rows of batches in a process of its own.
///
/// # Examples
///
/// ```no_run
/// use helio_sandbox::{Batch, Column, Filter, Launch, Limits, Number, Values};
///
/// let text = "def select(batch):\n    return batch['mag'] < 18.5";
/// let mut filter = Filter::start(Launch::python("python3"), text, Limits::default())?;
/// let bytes: Vec<u8> = [18.0_f64, 19.0].iter().flat_map(|mag| mag.to_le_bytes()).collect();
/// let values = Values::Numbers { kind: Number::F64, bytes: &bytes };
/// let batch = Batch::new(2, &[Column { name: "mag", values, validity: None }])?;
/// let (mask, usage) = filter.select(&batch)?;
/// assert!(mask.is_selected(0) && !mask.is_selected(1));
/// println!("{} of {} in {:?}", mask.count(), mask.rows(), usage.cpu);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Filter {
    launch: Launch,
    text: String,
    limits: Limits,
    /// None after its end.
    worker: Option<Worker>,
    restarts: Restarts,
}

impl Filter {
    /// Starts a worker, verifies its guards, and only then has it compile the text, which must
    /// define a function `select(batch)`.
    ///
    /// # Errors
    ///
    /// See [`StartError`]; without both guards no text is sent.
    pub fn start(launch: Launch, text: &str, limits: Limits) -> Result<Self, StartError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(StartError::TextSize(text.len()));
        }
        let worker = Some(ready(&launch, text, &limits)?);
        let text = text.to_owned();
        Ok(Self { launch, text, limits, worker, restarts: Restarts::default() })
    }

    /// Selects rows of a batch; blocks until the worker has answered or is over a limit. A worker
    /// that has ended is restarted first.
    ///
    /// # Errors
    ///
    /// See [`FilterError`]; after each the filter can be asked again.
    pub fn select(&mut self, batch: &Batch) -> Result<(Mask, Usage), FilterError> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.restart()?,
        };
        let (memory, length) = batch.memory();
        let payload = length.to_le_bytes();
        let answer = worker.request(b'B', &payload, Some(memory.as_fd()), &self.limits)?;
        let selected = match answer.kind {
            b'M' => {
                let mask =
                    Mask::from_answer(&answer, batch.rows()).ok_or_else(|| answer.garbage())?;
                Ok((mask, answer.usage))
            }
            b'E' => Err(FilterError::Raised(answer.text())),
            b'W' => Err(FilterError::Wrong(answer.text())),
            _ => return Err(answer.garbage().into()),
        };
        self.worker = Some(worker);
        selected
    }

    fn restart(&mut self) -> Result<Worker, FilterError> {
        let now = self.restarts.take(Instant::now(), &self.limits);
        now.map_err(|retry_after| FilterError::Suspended {
            restarts: self.limits.restarts,
            retry_after,
        })?;
        Ok(ready(&self.launch, &self.text, &self.limits)?)
    }
}

/// A worker that has compiled the text.
fn ready(launch: &Launch, text: &str, limits: &Limits) -> Result<Worker, StartError> {
    let mut worker = Worker::start(launch, limits)?;
    let answer = worker.request(b'T', text.as_bytes(), None, limits)?;
    match answer.kind {
        b'L' => Ok(worker),
        b'E' => Err(StartError::Text(answer.text())),
        _ => Err(Ended::into(answer.garbage())),
    }
}

/// The rows of a batch that a filter selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    rows: usize,
    bits: Vec<u8>,
}

impl Mask {
    /// None where the bits are not those of so many rows.
    fn from_answer(answer: &Answer, rows: usize) -> Option<Self> {
        let bits = answer.payload.clone();
        let rest = bits.last().map_or(0, |last| last.checked_shr(spare_shift(rows)).unwrap_or(0));
        (bits.len() == rows.div_ceil(8) && rest == 0).then_some(Self { rows, bits })
    }

    /// The number of the batch's rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of selected rows.
    pub fn count(&self) -> usize {
        self.bits.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether a row is selected; false beyond the last.
    pub fn is_selected(&self, row: usize) -> bool {
        self.bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1)
    }

    /// The bits, least significant first: an Arrow bitmap. Those beyond the rows are 0.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }
}

/// The bits of the last byte that belong to rows: 1 to 8.
fn spare_shift(rows: usize) -> u32 {
    match rows % 8 {
        0 => 8,
        used => u32::try_from(used).unwrap_or(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn mask(payload: &[u8], rows: usize) -> Option<Mask> {
        let usage = Usage { cpu: Duration::ZERO, time: Duration::ZERO, memory_bytes: 0 };
        Mask::from_answer(&Answer { kind: b'M', payload: payload.to_vec(), usage }, rows)
    }

    #[test]
    fn a_mask_has_a_bit_a_row() {
        let good = mask(&[0b1000_0001, 0b1], 9).unwrap();
        let selected: Vec<usize> = (0..20).filter(|row| good.is_selected(*row)).collect();
        assert_eq!((good.rows(), good.count(), selected), (9, 3, vec![0, 7, 8]));
        assert!(mask(&[0xff], 8).is_some() && mask(&[], 0).is_some());
        assert_eq!([mask(&[1], 9), mask(&[1, 0, 0], 9), mask(&[0, 0b10], 9)], [None, None, None]);
    }
}
