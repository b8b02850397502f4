//! Sends requests with reqwest, and writes the body of each response as it is decoded: a line with
//! its length, and the body.
//!
//! Arguments: pairs of a URL and the body of a POST; an empty one means GET.

use std::error::Error;
use std::io::Write;

use reqwest::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let client = Client::new();
    let mut output = std::io::stdout().lock();
    for request in arguments.chunks(2) {
        let [url, body] = request else {
            return Err("a URL has no body".into());
        };
        let request = match body.is_empty() {
            true => client.get(url),
            false => client
                .post(url)
                .header("Content-Type", "application/json")
                .body(body.clone()),
        };
        let response = request.send().await?.error_for_status()?;
        let decoded = response.bytes().await?;
        writeln!(output, "{}", decoded.len())?;
        output.write_all(&decoded)?;
    }
    Ok(())
}
