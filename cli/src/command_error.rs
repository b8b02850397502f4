//! The reasons for which a command ends, and the exit codes.

/// The exit codes and their meanings, as each man page lists them.
pub const EXIT_CODES: [(&str, &str); 6] = [
    (
        "0",
        "success; also if the reader of the output has closed it",
    ),
    (
        "1",
        "failed: the data is invalid, a file cannot be read or written, or a server cannot be \
         reached or reports an error",
    ),
    (
        "2",
        "invalid arguments; also a purge of everything that was not confirmed",
    ),
    ("3", "check and doctor: problems were found"),
    (
        "4",
        "warm: stopped after repeated errors; the command can be resumed",
    ),
    (
        "129, 130, 143",
        "ended by the signal HUP, INT (Ctrl-C) or TERM",
    ),
];

/// The reason for which a command ends before it is complete, or with findings.
#[derive(Debug)]
pub enum CommandError {
    /// An error in the data or the files, or of a server; exit code 1.
    Data(String),
    /// An error in the arguments; exit code 2.
    Usage(String),
    /// The command has reported problems; exit code 3.
    Findings,
    /// Errors were repeated, and the command can be resumed; exit code 4.
    Stopped(String),
    /// A signal; exit code 128 and its number.
    Interrupted(i32),
    /// The reader of the output has closed it; exit code 0.
    Pipe,
}

impl CommandError {
    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Pipe => 0,
            Self::Data(_) => 1,
            Self::Usage(_) => 2,
            Self::Findings => 3,
            Self::Stopped(_) => 4,
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(1),
        }
    }

    /// Returns the message for standard error, if there is one.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Data(text) | Self::Usage(text) | Self::Stopped(text) => Some(text),
            Self::Findings | Self::Interrupted(_) | Self::Pipe => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_table() {
        let codes = [
            (CommandError::Pipe, 0),
            (CommandError::Data("a".into()), 1),
            (CommandError::Usage("a".into()), 2),
            (CommandError::Findings, 3),
            (CommandError::Stopped("a".into()), 4),
            (CommandError::Interrupted(libc::SIGHUP), 129),
            (CommandError::Interrupted(libc::SIGINT), 130),
            (CommandError::Interrupted(libc::SIGTERM), 143),
        ];
        let documented: Vec<_> = EXIT_CODES
            .iter()
            .flat_map(|(code, _)| code.split(", "))
            .collect();
        for ((error, code), documented) in codes.iter().zip(documented) {
            assert_eq!(error.exit_code(), *code);
            assert_eq!(code.to_string(), documented);
        }
    }
}
