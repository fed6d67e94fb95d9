//! Why the registry rejects a request, with Confluent's error codes.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use helio_core::confluent::CompatibilityError;
use serde_json::json;
use thiserror::Error;

/// Why a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("Subject '{0}' not found.")]
    NoSubject(String),
    #[error("Version {0} not found.")]
    NoVersion(u32),
    #[error("Schema not found")]
    NoSchema,
    #[error("Schema {0} not found")]
    NoId(u32),
    #[error("Subject '{0}' was soft deleted. Set permanent=true to delete permanently")]
    SubjectDeleted(String),
    #[error("Subject '{0}' was not deleted first before being permanently deleted")]
    SubjectNotDeleted(String),
    #[error("Subject '{0}' Version {1} was soft deleted. Set permanent=true to delete permanently")]
    VersionDeleted(String, u32),
    #[error("Subject '{0}' Version {1} was not deleted first before being permanently deleted")]
    VersionNotDeleted(String, u32),
    #[error("Subject '{0}' does not have subject-level compatibility configured")]
    NoLevel(String),
    #[error("Subject '{0}' does not have subject-level mode configured")]
    NoMode(String),
    #[error("Schema being registered is incompatible with an earlier schema for subject {0}: {1}")]
    Incompatible(String, String),
    #[error("Invalid schema: {0}")]
    Schema(String),
    #[error(
        "The specified version '{0}' is not a valid version id. Allowed values are between \
         [1, 2^31-1] and the string \"latest\""
    )]
    Version(String),
    #[error("{0}")]
    Level(#[from] CompatibilityError),
    #[error("Invalid mode: {0}; use READWRITE, READONLY, READONLY_OVERRIDE or IMPORT")]
    Mode(String),
    #[error("Subject {0} is in read-only mode")]
    ReadOnly(String),
    #[error("Subject {0} is not in import mode")]
    NotImport(String),
    #[error("Subject {0} is not in read-write mode")]
    NotReadWrite(String),
    #[error("Cannot import since found existing subjects; force=true imports nevertheless")]
    NotEmpty,
    #[error("Overwrite new schema with id {0} is not permitted.")]
    IdTaken(u32),
    #[error("The schema has the id {known}, not {id}; remove its versions for good first")]
    OtherId { id: u32, known: u32 },
    #[error("Subject {0} has a version {1} with another schema")]
    VersionTaken(String, u32),
    #[error("{0}")]
    Request(String),
    #[error("{0}")]
    Store(String),
}

impl Refusal {
    /// Confluent's code: the HTTP status, followed by two digits.
    fn code(&self) -> u32 {
        match self {
            Self::NoSubject(_) => 40_401,
            Self::NoVersion(_) => 40_402,
            Self::NoSchema | Self::NoId(_) => 40_403,
            Self::SubjectDeleted(_) => 40_404,
            Self::SubjectNotDeleted(_) => 40_405,
            Self::VersionDeleted(..) => 40_406,
            Self::VersionNotDeleted(..) => 40_407,
            Self::NoLevel(_) => 40_408,
            Self::NoMode(_) => 40_409,
            Self::Incompatible(..) => 409,
            Self::Schema(_) => 42_201,
            Self::Version(_) => 42_202,
            Self::Level(_) => 42_203,
            Self::Mode(_) => 42_204,
            Self::ReadOnly(_)
            | Self::NotImport(_)
            | Self::NotReadWrite(_)
            | Self::NotEmpty
            | Self::IdTaken(_)
            | Self::VersionTaken(..) => 42_205,
            Self::OtherId { .. } => 42_207,
            Self::Request(_) => 422,
            Self::Store(_) => 50_001,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        let code = self.code();
        let status = if code < 1_000 { code } else { code / 100 };
        let status = u16::try_from(status).ok().and_then(|code| StatusCode::from_u16(code).ok());
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "error_code": self.code(), "message": self.to_string() });
        (self.status(), Json(body)).into_response()
    }
}
