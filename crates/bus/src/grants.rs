//! Grants: one user of the engine may read a topic.

/// The result of granting a topic to a user.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// The password of a login that was created for the user. It is stored nowhere and returned
    /// only now. `None` if the user has a login already, if the caller gave the password, or if the
    /// engine's users have none here.
    pub password: Option<String>,
}

impl Granted {
    /// The result, with the password that was generated.
    #[must_use]
    pub fn new(password: Option<String>) -> Self {
        Self { password }
    }
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let password = self.password.as_ref().map(|_| "…");
        f.debug_struct("Granted").field("password", &password).finish()
    }
}
