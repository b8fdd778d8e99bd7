//! Objects in a store that speaks S3's protocol.
//!
//! An object is put with `If-None-Match: *`, so the store itself refuses to replace one. Its SHA-256 is stored beside it.
//! When the name was taken, or the store's answer got lost, a look at the object by name decides: the same hash means
//! that the file is there, whoever put it; another one is a refusal. Nothing is retried here.

use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::{Path, PathPart};
use object_store::{
    Attribute, Attributes, ClientOptions, Error, GetOptions, ObjectStore as _, PutMode, PutOptions, RetryConfig,
};
use reqwest::StatusCode;
use secrecy::ExposeSecret as _;
use url::Url;

use super::{Uploaded, object_name};
use crate::answer::Failure;
use crate::digest::sha256_hex;
use crate::error::ToolServerError;
use crate::settings::Settings;
use crate::web::{is_loopback, means_not_done, root_cause, shown};

/// The largest file that is uploaded: it is put in one request, from memory.
pub(super) const MAX_BYTES: u64 = 256 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);
const HASH: &str = "sha256";

/// A bucket and the place in it below which objects go.
#[derive(Debug)]
pub(in crate::tools) struct Bucket {
    store: AmazonS3,
    name: String,
    prefix: Path,
}

/// What a look at an object found.
enum Look {
    Same,
    /// Something else; why we think so.
    Other(String),
    Absent,
}

/// Why a PUT is no success.
enum Put {
    /// Nothing was stored.
    Failed(Failure),
    /// The name was taken, or nobody can tell: a look decides.
    Open(Error),
}

impl Bucket {
    pub(super) fn new(text: &str, settings: &Settings) -> Result<Self, ToolServerError> {
        let setting = |flag, value: &str, why: String| ToolServerError::Setting { flag, value: value.to_owned(), why };
        let (name, prefix) = locate(text).map_err(|why| setting("objects", text, why))?;
        let missing = |variable| setting("objects", text, format!("{variable} is not set"));
        let id = settings.secrets.s3_access_key_id.as_ref().ok_or_else(|| missing("AWS_ACCESS_KEY_ID"))?;
        let secret = settings.secrets.s3_secret_access_key.as_ref().ok_or_else(|| missing("AWS_SECRET_ACCESS_KEY"))?;
        ua_http::prepare();
        let mut options = ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_timeout(REQUEST_TIMEOUT);
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&name)
            .with_region(&settings.s3_region)
            .with_access_key_id(id)
            .with_secret_access_key(secret.expose_secret())
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
        if let Some(token) = &settings.secrets.s3_session_token {
            builder = builder.with_token(token.expose_secret());
        }
        if let Some(endpoint) = &settings.s3_endpoint {
            let url = Url::parse(endpoint).map_err(|error| setting("s3-endpoint", endpoint, error.to_string()))?;
            match url.scheme() {
                "https" => {}
                "http" if is_loopback(&url) => options = options.with_allow_http(true),
                "http" => {
                    let why = "files and a session's token would go there unencrypted; give an https:// address, http:// is for this machine";
                    return Err(setting("s3-endpoint", &shown(endpoint), why.to_owned()));
                }
                other => {
                    let why = format!("{other}:// is not spoken; give an http:// or https:// address");
                    return Err(setting("s3-endpoint", endpoint, why));
                }
            }
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        let store = builder
            .with_client_options(options)
            .build()
            .map_err(|error| setting("objects", text, error.to_string()))?;
        Ok(Self { store, name, prefix })
    }

    /// The place that `destination` names; the bucket's own when it names none.
    pub(super) fn place(&self, destination: Option<&str>) -> Result<Path, Failure> {
        let Some(text) = destination else { return Ok(self.prefix.clone()) };
        let hint = format!("leave destination out, or name a place below {}", self.url(&self.prefix));
        let (name, place) = locate(text)
            .map_err(|why| Failure::refused(format!("{text:?} is not a place in the object store: {why}"), &hint))?;
        if name == self.name && place.prefix_matches(&self.prefix) {
            Ok(place)
        } else {
            Err(Failure::refused(format!("{text:?} is not inside the object store"), hint))
        }
    }

    #[tracing::instrument(name = "put object", skip_all, fields(otel.kind = "client", ua.object.bytes = ua_core::signed(content.len())))]
    pub(super) async fn put(
        &self,
        place: &Path,
        file: &str,
        media: &'static str,
        content: Vec<u8>,
    ) -> Result<Uploaded, Failure> {
        let bytes = content.len() as u64;
        if bytes > MAX_BYTES {
            return Err(Failure::refused(
                format!("{file:?} is larger than {} MiB", MAX_BYTES >> 20),
                "split or compress the file",
            ));
        }
        let sha256 = sha256_hex(&content);
        let object = place.clone().join(PathPart::from(object_name(&sha256, file)));
        let error = match self.store_as(&object, media, content, &sha256, PutMode::Create).await {
            Ok(()) => {
                return Ok(Uploaded { url: self.url(&object), sha256, bytes, already_present: false });
            }
            Err(Put::Failed(failure)) => return Err(failure),
            Err(Put::Open(error)) => error,
        };
        let taken = matches!(error, Error::AlreadyExists { .. });
        match self.look(&object, &sha256, bytes).await {
            Ok(Look::Same) => Ok(Uploaded { url: self.url(&object), sha256, bytes, already_present: taken }),
            Ok(Look::Other(why)) => Err(Failure::refused(
                format!("an object with other content has the name {object}: {why}"),
                "objects are never replaced: rename the file, or ask a person to look at the store",
            )),
            Ok(Look::Absent) => Err(unconfirmed(&object, &error, "it is not there yet")),
            Err(second) => Err(unconfirmed(&object, &error, &asked_in_vain(&second))),
        }
    }

    /// Puts `content` under a name of the caller's choice, in the place of what has it.
    #[tracing::instrument(name = "put object", skip_all, fields(otel.kind = "client", ua.object.bytes = ua_core::signed(content.len())))]
    pub(super) async fn put_at(
        &self,
        path: &str,
        media: &'static str,
        content: Vec<u8>,
    ) -> Result<(String, String, u64), Failure> {
        let bytes = content.len() as u64;
        let sha256 = sha256_hex(&content);
        let object = self.below(path);
        match self.store_as(&object, media, content, &sha256, PutMode::Overwrite).await {
            Ok(()) => {}
            Err(Put::Failed(failure)) => return Err(failure),
            Err(Put::Open(error)) => match self.look(&object, &sha256, bytes).await {
                Ok(Look::Same) => {}
                Ok(Look::Other(_)) => return Err(unconfirmed(&object, &error, "the one before is still there")),
                Ok(Look::Absent) => return Err(unconfirmed(&object, &error, "it is not there yet")),
                Err(second) => return Err(unconfirmed(&object, &error, &asked_in_vain(&second))),
            },
        }
        Ok((self.url(&object), sha256, bytes))
    }

    /// The content of the object at `path`, and its address.
    #[tracing::instrument(name = "get object", skip_all, fields(otel.kind = "client"))]
    pub(super) async fn get_at(&self, path: &str) -> Result<(String, Vec<u8>), Failure> {
        let object = self.below(path);
        let failed = |error: &Error| {
            if matches!(error, Error::NotFound { .. }) {
                let hint = "check the name; workbench_upload says what it was called";
                return Failure::refused(format!("there is no object {object}"), hint);
            }
            Failure::refused(
                format!("could not get {object}: {}", root_cause(error)),
                "try again later, or ask a person to check --objects, --s3-endpoint and the credentials",
            )
        };
        let found = self.store.get_opts(&object, GetOptions::default()).await.map_err(|error| failed(&error))?;
        if found.meta.size > MAX_BYTES {
            let problem = format!("{object} is larger than {} MiB", MAX_BYTES >> 20);
            return Err(Failure::refused(problem, "split it where it comes from"));
        }
        let content = found.bytes().await.map_err(|error| failed(&error))?;
        Ok((self.url(&object), content.to_vec()))
    }

    fn below(&self, path: &str) -> Path {
        path.split('/').fold(self.prefix.clone(), |place, part| place.join(PathPart::from(part)))
    }

    /// One PUT, and what its failure means.
    async fn store_as(
        &self,
        object: &Path,
        media: &'static str,
        content: Vec<u8>,
        sha256: &str,
        mode: PutMode,
    ) -> Result<(), Put> {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, media.into());
        attributes.insert(Attribute::Metadata(HASH.into()), sha256.to_owned().into());
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let Err(error) = self.store.put_opts(object, content.into(), options).await else {
            return Ok(());
        };
        let taken = matches!(error, Error::AlreadyExists { .. });
        if !taken && was_refused(&error) {
            return Err(Put::Failed(Failure::refused(
                format!("the object store refused the file, nothing was uploaded: {}", root_cause(&error)),
                "ask a person to check --objects, --s3-endpoint, --s3-region and the credentials",
            )));
        }
        Err(Put::Open(error))
    }

    /// Compares the object of that name with a file by length and stored hash, or by content where no hash is stored.
    async fn look(&self, object: &Path, sha256: &str, bytes: u64) -> Result<Look, Error> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        let found = match self.store.get_opts(object, head).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(Look::Absent),
            Err(error) => return Err(error),
        };
        if found.meta.size != bytes {
            return Ok(Look::Other(format!("it has {} bytes, the file has {bytes}", found.meta.size)));
        }
        // The length is the file's, so reading it costs no more than uploading did.
        let theirs = match found.attributes.get(&Attribute::Metadata(HASH.into())) {
            Some(stored) => stored.to_string(),
            None => sha256_hex(self.store.get_opts(object, GetOptions::default()).await?.bytes().await?),
        };
        Ok(if theirs == sha256 { Look::Same } else { Look::Other(format!("its SHA-256 is {theirs}")) })
    }

    fn url(&self, object: &Path) -> String {
        let mut url = format!("s3://{}", self.name);
        if let Ok(mut parsed) = Url::parse(&url) {
            if let Ok(mut segments) = parsed.path_segments_mut() {
                segments.extend(object.parts().map(|part| part.as_ref().to_owned()));
            }
            url = parsed.into();
        }
        url
    }
}

fn unconfirmed(object: &Path, error: &Error, then: &str) -> Failure {
    Failure::Unclear(format!("the object store did not confirm {object} ({}), and {then}", root_cause(error)))
}

fn asked_in_vain(error: &Error) -> String {
    format!("it cannot be asked about it: {}", root_cause(error))
}

/// Bucket and path of an s3:// URL.
fn locate(text: &str) -> Result<(String, Path), String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let name = url.host_str().filter(|name| !name.is_empty());
    match (url.scheme(), name) {
        ("s3", Some(name)) => {
            let path = Path::from_url_path(url.path()).map_err(|error| error.to_string())?;
            Ok((name.to_owned(), path))
        }
        _ => Err("give s3://BUCKET or s3://BUCKET/PREFIX".to_owned()),
    }
}

/// Whether the error says that nothing was stored: the request never left, or the store said no.
fn was_refused(error: &Error) -> bool {
    let is_no = matches!(
        error,
        Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotFound { .. }
            | Error::InvalidPath { .. }
    );
    is_no || never_left(error) || status(error).is_some_and(means_not_stored)
}

/// 301 is S3's "this bucket is elsewhere".
fn means_not_stored(status: StatusCode) -> bool {
    status == StatusCode::MOVED_PERMANENTLY || means_not_done(status)
}

fn never_left(error: &Error) -> bool {
    causes(error).any(|cause| cause.downcast_ref::<HttpError>().is_some_and(|e| e.kind() == HttpErrorKind::Connect))
}

/// The status of the store's answer. The library keeps it in a private type, so it is read from the type's sentence; when
/// that changes there is no status, and the outcome counts as unknown.
fn status(error: &Error) -> Option<StatusCode> {
    causes(error).find_map(|cause| {
        let text = cause.to_string();
        if text.starts_with("Received redirect without LOCATION") {
            return Some(StatusCode::MOVED_PERMANENTLY);
        }
        let code = text.strip_prefix("Server returned non-2xx status code: ")?.get(..3)?;
        code.parse::<u16>().ok().and_then(|code| StatusCode::from_u16(code).ok())
    })
}

fn causes<'a>(error: &'a Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    let first: &'a (dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_objects_go_over_tls_or_stay_on_this_machine() {
        let bucket = |endpoint: &str| {
            let mut settings = Settings { s3_endpoint: Some(endpoint.to_owned()), ..Settings::in_workspace("/") };
            settings.secrets.s3_access_key_id = Some("AKIDUA".to_owned());
            settings.secrets.s3_secret_access_key = Some("secret".into());
            Bucket::new("s3://reports/2026", &settings).map(|_| ()).map_err(|error| error.to_string())
        };
        for fine in ["https://s3.example", "http://127.0.0.1:9000", "http://[::1]:9000/", "http://localhost:9000"] {
            bucket(fine).unwrap();
        }
        for wrong in ["http://s3.example", "http://10.0.0.1:9000", "http://0.0.0.0:9000", "http://localhost.example"] {
            let why = bucket(wrong).unwrap_err();
            assert!(why.contains("s3-endpoint") && why.contains("unencrypted"), "{wrong}: {why}");
        }
    }
}
