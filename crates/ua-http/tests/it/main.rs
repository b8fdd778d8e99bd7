//! Whom the client believes, in processes of their own: what a process trusts is read once.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;
use ua_testkit::TlsIdentity;

const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

/// Answers every connection with 204, encrypted if there is an identity.
async fn server(identity: Option<TlsIdentity>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            if let Some(identity) = &identity {
                // A client that does not believe us goes away in the middle.
                if let Ok(mut stream) = identity.accept(stream).await {
                    assert!(stream.read(&mut request).await.unwrap() > 0);
                    stream.write_all(ANSWER).await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            } else {
                assert!(stream.read(&mut request).await.unwrap() > 0);
                stream.write_all(ANSWER).await.unwrap();
            }
        }
    });
    address
}

/// The example, which cargo builds beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples/get");
    assert!(program.exists(), "{} is not built; run `cargo build -p ua-http --examples`", program.display());
    program
}

/// What the program says of `url` on a system that trusts the authorities in `authorities`: the status it got, or why there is none.
async fn get(url: String, authorities: &Path) -> Result<String, String> {
    let mut command = Command::new(example());
    let nowhere = authorities.with_extension("none");
    command.arg(url).env("SSL_CERT_FILE", authorities).env("SSL_CERT_DIR", nowhere);
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[tokio::test]
async fn only_those_are_believed_whom_the_system_trusts() {
    let folder = TempDir::new().unwrap();
    let [ours, another] = ["ours", "another"].map(|name| {
        let identity = TlsIdentity::new().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, &identity.authority_pem).unwrap();
        (identity, file)
    });
    let url = format!("https://{}/", server(Some(ours.0)).await);
    assert_eq!(get(url.clone(), &ours.1).await.unwrap(), "204 No Content");
    let refused = get(url.clone(), &another.1).await.unwrap_err();
    assert!(refused.contains("InvalidCertificate"), "{refused}");
    // The certificate is for an address, not for a name.
    let named = get(url.replace("127.0.0.1", "localhost"), &ours.1).await.unwrap_err();
    assert!(named.contains("InvalidCertificate(NotValidForName"), "{named}");
}

#[tokio::test]
async fn a_system_without_certificates_reaches_servers_that_need_none() {
    let folder = TempDir::new().unwrap();
    let absent = folder.path().join("absent");
    let plain = format!("http://{}/", server(None).await);
    assert_eq!(get(plain, &absent).await.unwrap(), "204 No Content");
    let encrypted = format!("https://{}/", server(Some(TlsIdentity::new().unwrap())).await);
    let refused = get(encrypted, &absent).await.unwrap_err();
    assert!(refused.contains("No CA certificates were loaded"), "{refused}");
}
