//! The bodies that a benchmark compresses.

use std::error::Error;
use std::path::Path;

/// A body and its name.
pub struct Body {
    pub name: String,
    pub content: Vec<u8>,
}

/// Reads the files in a folder, in the order of their names.
pub fn read_bodies(folder: &Path) -> Result<Vec<Body>, Box<dyn Error>> {
    let mut bodies = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bodies.push(Body {
            name: entry.file_name().to_string_lossy().into_owned(),
            content: std::fs::read(entry.path())?,
        });
    }
    bodies.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(bodies)
}
