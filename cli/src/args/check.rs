//! The arguments of `sszip check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The files of `sszip check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Configuration files: nginx.conf, with all files that it includes; the output of nginx -T; a
    /// file of conf.d or sites-enabled; or envoy.yaml. - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The format [default: envoy for .yaml, .yml and .json, otherwise nginx]
    #[arg(long, value_enum)]
    pub format: Option<ConfigFormat>,
    /// Exit with 3 for warnings too
    #[arg(long)]
    pub strict: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The format of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConfigFormat {
    /// The configuration language of nginx
    Nginx,
    /// YAML or JSON of Envoy
    Envoy,
}
