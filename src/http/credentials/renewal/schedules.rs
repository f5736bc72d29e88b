//! Thread schedules of credentials that are fetched for many requests at once.
