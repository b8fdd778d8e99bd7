//! Which policy pack each tool server is judged by: the one about the package that its configuration names, or the one that the user names.
//!
//! A pack lowers caution (a read runs again, a lost call is looked up), so it counts only for a server that a person said is that very
//! package: by the command line or the address in a configuration that is theirs or that they let in, or by the setting `server_packs`.
//! What a server calls itself is never asked, and its name in the configuration may only raise caution. A command line is read strictly:
//! one option that is not known, and no package is named; and so is none where the folder that it is started in decides what the name means
//! (`review/shadow.rs`). Of a program that is installed already, what it was installed as is looked up beside it (`installed.rs`).
//!
//! Proved by: this file's tests, and `ua-classify`'s tests `packs`.

mod installed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ua_classify::Pack;
use ua_mcp::{McpConfig, Reach};

use crate::error::HostError;
use crate::review::{Start, name_of, of_uv_run, shadow};
use crate::settings::Settings;

/// Options of launchers that decide nothing about what is run.
const HARMLESS: [&str; 15] = [
    "--",
    "--interactive",
    "--isolated",
    "--no-install",
    "--no-project",
    "--prefer-offline",
    "--quiet",
    "--read-only",
    "--rm",
    "--tty",
    "--yes",
    "-i",
    "-q",
    "-y",
    "--init",
];

/// Short options of containers that are often written as one.
const HARMLESS_CLUSTERS: [&str; 4] = ["-it", "-ti", "-t", "--pull=always"];

/// Options of containers that take a value and decide nothing about what is run.
const WITH_VALUE: [&str; 21] = [
    "-e",
    "--env",
    "--env-file",
    "--mount",
    "--name",
    "--network",
    "--volume",
    "-v",
    "-p",
    "--publish",
    "--cap-drop",
    "--cpus",
    "--label",
    "-m",
    "--memory",
    "--pids-limit",
    "--platform",
    "--pull",
    "--security-opt",
    "-u",
    "--user",
];

/// Programs that run what the words behind them say.
const RUN_WORDS: [&str; 16] = [
    "ash", "bash", "bun", "busybox", "dash", "deno", "env", "node", "npx", "perl", "python", "python3", "ruby", "sh",
    "uvx", "zsh",
];

/// Variables that decide what code a launcher fetches or a program loads, or where it talks to: the beginnings of their names, in capitals.
const DECIDING: [&str; 42] = [
    "APPDATA",
    "BASH_ENV",
    "BUN_",
    "CONDA_",
    "CONTAINER",
    "COREPACK_",
    "CURL_",
    "DENO_",
    "DOCKER_",
    "DYLD_",
    "ENV",
    "GCONV_",
    "GIT_",
    "HOME",
    "HOSTALIASES",
    "JAVA_",
    "JDK_",
    "LD_",
    "LOCALAPPDATA",
    "LOCALDOMAIN",
    "MISE_",
    "NODE_",
    "NPM_",
    "OPENSSL_",
    "PATH",
    "PERL5",
    "PIPX_",
    "PIP_",
    "PNPM_",
    "PODMAN_",
    "PREFIX",
    "PYTHON",
    "REQUESTS_",
    "RES_OPTIONS",
    "RUBY",
    "SHELL",
    "SSL_",
    "USERPROFILE",
    "UV_",
    "VIRTUAL_ENV",
    "XDG_",
    "YARN_",
];

/// The same by what stands anywhere in the name. Names by which a server is told where the user's own service is (`JIRA_URL`, `REDIS_HOST`)
/// are none of them.
const DECIDING_PARTS: [&str; 10] =
    ["API_BASE", "API_HOST", "API_URL", "BASE_URL", "CA_BUNDLE", "CA_CERT", "CERTS", "ENDPOINT", "PROXY", "REGISTRY"];

/// Whether a variable, or an option of this name, decides what is run or where that talks to.
fn decides(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_uppercase().replace('-', "_");
    let begins = |beginning: &&str| {
        let is_open = beginning.ends_with('_') || matches!(*beginning, "CONTAINER" | "PERL5" | "PYTHON" | "RUBY");
        name == **beginning || (is_open && name.starts_with(*beginning))
    };
    // They say how, and nothing else.
    let is_harmless = matches!(name.as_str(), "NODE_ENV" | "PYTHONUNBUFFERED");
    (!is_harmless && DECIDING.iter().any(begins)) || DECIDING_PARTS.iter().any(|part| name.contains(part))
}

/// The pack of each server that somebody vouches for, by the server's name; `None` where the user wants none. The servers are started in `folder`.
pub(crate) fn chosen(
    settings: &Settings,
    folder: &Path,
    config: &McpConfig,
) -> Result<BTreeMap<String, Option<String>>, HostError> {
    let damaged = |error: ua_classify::PolicyError| HostError::usage(error.to_string());
    let (path, home) = (settings.var("PATH").unwrap_or_default(), settings.of_environment("HOME").map(PathBuf::from));
    let start = Start { folder, path: &path, home: home.as_deref() };
    let mut chosen = BTreeMap::new();
    for (server, reach) in &config.servers {
        for package in packages_of(reach, start) {
            if let Some(pack) = Pack::about_package(&package).map_err(damaged)? {
                chosen.insert(server.clone(), Some(pack.id().to_owned()));
                break;
            }
        }
    }
    chosen.extend(by_word(settings)?);
    Ok(chosen)
}

/// What the setting `server_packs` says.
fn by_word(settings: &Settings) -> Result<BTreeMap<String, Option<String>>, HostError> {
    let text = settings.var("UA_SERVER_PACKS").unwrap_or_default();
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let read = entries.map(|entry| match entry.split_once('=') {
        Some((server, "none")) => Ok((server.to_owned(), None)),
        Some((server, pack)) if !server.is_empty() && !pack.is_empty() => {
            Ok((server.to_owned(), Some(pack.to_owned())))
        }
        _ => Err(HostError::usage(format!("server_packs does not accept {entry:?}"))
            .hint("write SERVER=PACK, or SERVER=none, separated by commas; `ua tools packs` lists the packs")),
    });
    read.collect()
}

/// What a configuration says that a server is, as [`Pack::packages`] names it.
fn packages_of(reach: &Reach, start: Start<'_>) -> Vec<String> {
    match reach {
        Reach::Http { url, .. } => host_of(url).into_iter().collect(),
        Reach::Stdio { command, args, env, cwd } => {
            // A folder has settings of its own for what is fetched (`.npmrc`).
            let is_elsewhere =
                cwd.is_some() || env.keys().any(|name| decides(name)) || args.iter().any(|arg| redirects(arg));
            // A relative path is whatever lies in some folder.
            if is_elsewhere || (command.contains('/') && !Path::new(command).is_absolute()) {
                return Vec::new();
            }
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            let named = of_command(command, &words, start);
            // What is run is what the folder has under that name.
            named.filter(|_| shadow(command, args, start).is_none()).into_iter().collect()
        }
    }
}

/// Whether an argument is an option, or sets a variable, that decides what is run or where that talks to.
fn redirects(arg: &str) -> bool {
    let name = arg.split('=').next().unwrap_or_default();
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let is_variable =
        arg.contains('=') || name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    // `-e HOME` of a container gives the variable on as it is outside.
    match arg.strip_prefix("--env=") {
        Some(variable) => decides(variable.split('=').next().unwrap_or_default()),
        None if name.starts_with("--") => {
            name == "--env-file"
                || DECIDING_PARTS.iter().any(|part| name[2..].to_uppercase().replace('-', "_").contains(part))
        }
        None => is_name(name) && is_variable && !name.is_empty() && decides(name),
    }
}

fn of_command(command: &str, args: &[&str], start: Start<'_>) -> Option<String> {
    let name = Path::new(command).file_name()?.to_str()?;
    match (name, args) {
        // It sets variables, which were looked at, and becomes what follows them.
        ("env", rest) => {
            let (command, rest) =
                rest.iter().position(|word| !word.contains('=')).map(|at| rest.split_at(at).1)?.split_first()?;
            let is_named = !command.starts_with('-') && (!command.contains('/') || Path::new(command).is_absolute());
            is_named.then(|| of_command(command, rest, start)).flatten()
        }
        ("npx" | "bunx" | "pnpx", rest)
        | ("npm", ["exec" | "x", rest @ ..])
        | ("pnpm" | "yarn", ["dlx", rest @ ..])
        | ("bun", ["x", rest @ ..]) => of_npm(rest),
        ("uvx", rest) | ("uv", ["tool", "run", rest @ ..]) => of_python(rest, "--from", false),
        ("pipx", ["run", rest @ ..]) => of_python(rest, "--spec", false),
        // What a project has in its environment is whatever lies in some folder; what is asked for beside it comes first, where there is none.
        ("uv", ["run", rest @ ..]) => {
            let named = of_python(rest, "--with", true)?;
            let command = named.strip_prefix("pypi:").unwrap_or(&named);
            of_uv_run(command, start).is_none().then_some(named)
        }
        ("python" | "python3", ["-m", module, ..] | ["-I" | "-P", "-m", module, ..]) => {
            Some(format!("python:{module}"))
        }
        ("docker" | "podman", ["run", rest @ ..]) => {
            let (image, behind) = first_word(rest, &WITH_VALUE)?;
            let options = &rest[..rest.len() - behind.len() - 1];
            // An image without an entry point runs what is named behind it.
            let runs_another = behind.first().is_some_and(|word| RUN_WORDS.contains(&name_of(word)));
            (mounts(options).all(is_of_data) && !runs_another).then(|| format!("oci:{}", image_name(image)))
        }
        // A program of the package that it lies in.
        ("node" | "bun", [script, ..]) if Path::new(script).is_absolute() => installed::package_of(Path::new(script)),
        (program, _) => {
            let file =
                if command.contains('/') { Some(command.into()) } else { installed::in_path(command, start.path) };
            let package = file.and_then(|file| installed::package_of(&file));
            Some(package.unwrap_or_else(|| format!("program:{program}")))
        }
    }
}

/// What options of a container put into its folders, as they stand.
fn mounts<'a>(options: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    const NAMES: [&str; 3] = ["--mount", "--volume", "-v"];
    options.iter().enumerate().filter_map(|(at, word)| match word.split_once('=') {
        Some((option, value)) if NAMES.contains(&option) => Some(value),
        Some(_) | None => NAMES.contains(word).then(|| options.get(at + 1).copied().unwrap_or_default()),
    })
}

/// Whether what is mounted lies where an image has no program of its own: `src:/projects`, `type=bind,src=/x,dst=/data/x`.
fn is_of_data(mount: &str) -> bool {
    const DATA: [&str; 18] = [
        "data",
        "documents",
        "files",
        "local-directory",
        "media",
        "mnt",
        "notes",
        "project",
        "projects",
        "repo",
        "repos",
        "repositories",
        "share",
        "shared",
        "vault",
        "workdir",
        "workspace",
        "workspaces",
    ];
    let fields = || mount.split(',').filter_map(|field| field.split_once('='));
    let named = fields().filter(|(name, _)| matches!(*name, "dst" | "destination" | "target")).map(|(_, value)| value);
    let by_place = mount.split(':').nth(1).filter(|_| fields().next().is_none());
    let targets: Vec<&str> = named.chain(by_place).collect();
    let is_data = |target: &&str| {
        let first = target.strip_prefix('/').and_then(|rest| rest.split('/').next());
        first.is_some_and(|first| DATA.contains(&first)) && !target.split('/').any(|part| part == "..")
    };
    !targets.is_empty() && targets.iter().all(is_data)
}

/// The package of Python that a launcher runs: the one that it is told to run, or the one that `option` names in front of a command of the same
/// name. `is_named`: without that option nobody knows.
fn of_python(rest: &[&str], option: &str, is_named: bool) -> Option<String> {
    let (package, command) = match named_package(rest, &[option]) {
        Some((package, rest)) => (package, first_word(&rest, &[])?.0),
        None if is_named => return None,
        None => first_word(rest, &[]).map(|(package, _)| (package, package))?,
    };
    let name = python_name(package)?;
    (python_name(command)? == name).then(|| format!("pypi:{name}"))
}

fn of_npm(rest: &[&str]) -> Option<String> {
    let (package, after) = match named_package(rest, &["-p", "--package"]) {
        Some((package, rest)) => {
            // Of a command by another name nobody knows whose it is: what a package lacks is looked for in PATH.
            let (command, after) = first_word(&rest, &[])?;
            let own = npm_name(package)?.rsplit('/').next();
            (package, (own == Some(command)).then(|| after.to_vec())?)
        }
        None => first_word(rest, &[]).map(|(package, after)| (package, after.to_vec()))?,
    };
    let name = npm_name(package)?;
    // A bridge to a remote server: what counts is where it leads.
    if name == "mcp-remote" {
        return host_of(after.first()?);
    }
    Some(format!("npm:{name}"))
}

/// The package that one of these options in front of the command names (`npx --package PACKAGE COMMAND`), and the words without that option.
fn named_package<'a>(words: &[&'a str], options: &[&str]) -> Option<(&'a str, Vec<&'a str>)> {
    let command = words.iter().position(|word| !word.starts_with('-'));
    let is_option = |word: &&str| {
        options.contains(word)
            || word.split_once('=').is_some_and(|(name, _)| name.starts_with("--") && options.contains(&name))
    };
    let at = words.iter().position(is_option)?;
    if command.is_some_and(|command| command < at) {
        return None;
    }
    let (package, taken) = match words[at].split_once('=') {
        Some((_, package)) => (package, 1),
        None => (*words.get(at + 1)?, 2),
    };
    let rest = words.iter().enumerate().filter(|(place, _)| !(at..at + taken).contains(place));
    Some((package, rest.map(|(_, word)| *word).collect()))
}

/// The first word that is no option, and what follows it; `None` if an option is not known.
fn first_word<'w, 'a>(words: &'w [&'a str], with_value: &[&str]) -> Option<(&'a str, &'w [&'a str])> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if !word.starts_with('-') {
            return Some((word, &words[at + 1..]));
        }
        let is_assigned = word.split_once('=').is_some_and(|(option, _)| with_value.contains(&option));
        at += match word {
            word if with_value.contains(word) => 2,
            word if is_assigned || HARMLESS.contains(word) => 1,
            word if !with_value.is_empty() && HARMLESS_CLUSTERS.contains(word) => 1,
            _ => return None,
        };
    }
    None
}

/// The name in a package of npm, without its version. What comes from elsewhere (an address, a folder, another name) is none.
fn npm_name(package: &str) -> Option<&str> {
    let (scope, rest) = match package.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').map(|(scope, rest)| (scope.len() + 2, rest))?,
        None => (0, package),
    };
    let (name, version) = rest.split_once('@').unwrap_or((rest, ""));
    let is_plain = |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    let is_named = !name.is_empty() && is_plain(name, "-._") && is_plain(version, "-._+^~*");
    is_named.then(|| &package[..scope + name.len()])
}

/// The name in a requirement of Python, without extras and version.
fn python_name(requirement: &str) -> Option<&str> {
    let end = requirement.find(['[', '=', '<', '>', '~', '!', '@']).unwrap_or(requirement.len());
    let (name, rest) = requirement.split_at(end);
    let is_plain = |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    (!name.is_empty() && is_plain(name, "-._") && is_plain(rest, "-._+[],=<>~!@*")).then_some(name)
}

/// An image without its tag and digest.
fn image_name(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        // The colon of a port is followed by a path.
        Some((name, tag)) if !tag.contains('/') => name.strip_prefix("docker.io/").unwrap_or(name),
        _ => image.strip_prefix("docker.io/").unwrap_or(image),
    }
}

/// The host of an address that is asked over TLS.
fn host_of(address: &str) -> Option<String> {
    let url = url::Url::parse(address).ok()?;
    let is_plain = url.scheme() == "https" && url.port().is_none() && url.username().is_empty();
    is_plain.then(|| url.host_str().map(|host| format!("host:{host}"))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is not there brings nothing along.
    fn nowhere() -> Start<'static> {
        Start { folder: Path::new("/nowhere/at/all"), path: "", home: None }
    }

    fn stdio(command: &str, args: &[&str]) -> Reach {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Reach::Stdio { command: command.to_owned(), args, env: BTreeMap::new(), cwd: None }
    }

    fn named(command: &str, args: &[&str]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        packages_of(&stdio(command, args), Start { folder: folder.path(), ..nowhere() }).pop()
    }

    /// A name vouches for what it names only where the folder of the start has nothing that is run in its place.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
    fn s13_a_name_that_the_folder_of_the_start_gives_another_meaning_names_no_package() {
        let git: &[&str] = &["-m", "mcp_server_git"];
        let with_git: &[&str] = &["run", "--no-project", "--with", "mcp-server-git", "mcp-server-git"];
        for (command, args, file) in [
            ("python3", git, "mcp_server_git.py"),
            ("python3", git, "pydantic/__init__.py"),
            ("npx", &["-y", "tavily-mcp"], "node_modules/tavily-mcp/package.json"),
            ("npx", &["-y", "tavily-mcp"], ".npmrc"),
            ("uvx", &["mcp-server-git"], "uv.toml"),
            ("pipx", &["run", "mcp-atlassian"], "mcp-atlassian"),
            ("uv", with_git, "pyproject.toml"),
            ("uv", with_git, "mcp-server-git/__main__.py"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let home = folder.path().canonicalize().unwrap();
            let base = home.join("checkout");
            std::fs::create_dir(&base).unwrap();
            let start = Start { folder: &base, home: Some(&home), ..nowhere() };
            assert_eq!(packages_of(&stdio(command, args), start).len(), 1, "{command} {args:?}");
            std::fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            std::fs::write(base.join(file), "").unwrap();
            assert_eq!(packages_of(&stdio(command, args), start), [""; 0], "{command} {args:?}: {file}");
        }
        // Python looks elsewhere when it is told to.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mcp_server_git.py"), "").unwrap();
        let start = Start { folder: folder.path(), ..nowhere() };
        for option in ["-I", "-P"] {
            assert_eq!(
                packages_of(&stdio("python3", &[option, "-m", "mcp_server_git"]), start),
                ["python:mcp_server_git"]
            );
        }
    }

    #[test]
    fn a_command_line_names_its_package() {
        let cases: [(&str, &[&str], &str); 34] = [
            (
                "npx",
                &["-y", "@zencoderai/slack-mcp-server", "--transport", "stdio"],
                "npm:@zencoderai/slack-mcp-server",
            ),
            ("uvx", &["s3-mcp"], "pypi:s3-mcp"),
            ("python3", &["-m", "s3_mcp"], "python:s3_mcp"),
            ("docker", &["run", "-i", "--rm", "-e", "AWS_REGION", "ghcr.io/txn2/mcp-s3"], "oci:ghcr.io/txn2/mcp-s3"),
            // What it runs is a name of a directory and no package.
            ("npx", &["-y", "@smithery/cli", "run", "@notionhq/notion-mcp-server"], "npm:@smithery/cli"),
            ("npx", &["-y", "@notionhq/notion-mcp-server"], "npm:@notionhq/notion-mcp-server"),
            ("npx", &["-y", "@playwright/mcp@latest", "--headless"], "npm:@playwright/mcp"),
            ("/usr/bin/npx", &["tavily-mcp@0.2.1"], "npm:tavily-mcp"),
            ("npm", &["exec", "--yes", "pkg@^1"], "npm:pkg"),
            ("npx", &["-y", "--package", "tavily-mcp@0.2.1", "tavily-mcp"], "npm:tavily-mcp"),
            ("npx", &["--package=@upstash/context7-mcp", "-y", "context7-mcp"], "npm:@upstash/context7-mcp"),
            ("npm", &["exec", "-p", "tavily-mcp", "--", "tavily-mcp"], "npm:tavily-mcp"),
            ("npx", &["-p", "mcp-remote", "mcp-remote", "https://mcp.linear.app/sse"], "host:mcp.linear.app"),
            ("npx", &["-y", "mcp-remote", "https://mcp.linear.app/sse"], "host:mcp.linear.app"),
            ("uvx", &["mcp-server-git==1.2.3", "--repository", "."], "pypi:mcp-server-git"),
            ("uvx", &["awslabs.aws-api-mcp-server@latest"], "pypi:awslabs.aws-api-mcp-server"),
            ("uvx", &["redis-mcp-server[extra]>=1"], "pypi:redis-mcp-server"),
            ("pipx", &["run", "mcp-atlassian"], "pypi:mcp-atlassian"),
            ("uv", &["tool", "run", "basic-memory"], "pypi:basic-memory"),
            ("uvx", &["--from", "mcp-server-git==1.2", "mcp-server-git"], "pypi:mcp-server-git"),
            ("uvx", &["--from=redis-mcp-server@latest", "redis-mcp-server", "--url", "x"], "pypi:redis-mcp-server"),
            ("pipx", &["run", "--spec", "mcp-atlassian", "mcp-atlassian"], "pypi:mcp-atlassian"),
            ("uv", &["run", "--no-project", "--with", "mcp-server-git", "mcp-server-git"], "pypi:mcp-server-git"),
            ("env", &["A=b", "npx", "-y", "tavily-mcp"], "npm:tavily-mcp"),
            ("/usr/bin/env", &["github-mcp-server", "stdio"], "program:github-mcp-server"),
            ("python3", &["-m", "mcp_server_git"], "python:mcp_server_git"),
            (
                "docker",
                &["run", "-i", "--rm", "-e", "TOKEN", "ghcr.io/github/github-mcp-server:v1"],
                "oci:ghcr.io/github/github-mcp-server",
            ),
            ("docker", &["run", "-v", "/srv/x:/projects/x:ro", "mcp/filesystem", "/projects"], "oci:mcp/filesystem"),
            ("docker", &["run", "--mount", "type=bind,src=.,dst=/data", "mcp/sqlite"], "oci:mcp/sqlite"),
            ("docker", &["run", "-it", "--env=A=b", "docker.io/mcp/fetch@sha256:00"], "oci:mcp/fetch"),
            ("docker", &["run", "localhost:5000/mcp/fetch"], "oci:localhost:5000/mcp/fetch"),
            ("docker", &["run", "-i", "--pull", "always", "--platform=linux/amd64", "mcp/fetch"], "oci:mcp/fetch"),
            ("/opt/bin/github-mcp-server", &["stdio"], "program:github-mcp-server"),
            ("github-mcp-server", &["stdio"], "program:github-mcp-server"),
        ];
        for (command, args, expected) in cases {
            assert_eq!(named(command, args).as_deref(), Some(expected), "{command} {args:?}");
        }
    }

    #[test]
    fn s13_a_command_line_that_could_run_something_else_names_no_package() {
        let good = "@modelcontextprotocol/server-github";
        let cases: [(&str, &[&str]); 41] = [
            ("npx", &["-y", "--registry=https://evil.example", good]),
            ("npx", &["-y", "-p", "evil", good]),
            ("npx", &["-c", "evil", good]),
            ("npx", &["-y", "--package", good, "evil"]),
            ("npx", &["-y", "--package", good, "sh", "-c", "evil"]),
            ("npx", &["-y", "--package", good, "--package", "evil", "server-github"]),
            ("npx", &["-y", "--package", "github:evil/server-github", "server-github"]),
            ("npx", &["-y", "--package", good, "-c", "server-github"]),
            ("npx", &["-y", "--package", good]),
            ("npx", &["-y", "@modelcontextprotocol/server-github@npm:evil"]),
            ("npx", &["-y", "@modelcontextprotocol/server-github@https://evil.example/x.tgz"]),
            ("npx", &["-y", "github:evil/server-github"]),
            ("npx", &["-y", "./@modelcontextprotocol/server-github"]),
            ("./npx", &["-y", good]),
            ("uvx", &["--from", "git+https://evil.example", "mcp-server-git"]),
            ("uvx", &["mcp-server-git@git+https://evil.example"]),
            ("uvx", &["--index-url", "https://evil.example", "mcp-server-git"]),
            ("docker", &["run", "--entrypoint", "sh", "ghcr.io/github/github-mcp-server"]),
            ("docker", &["run", "-v", "./x:/app", "mcp/slack"]),
            ("docker", &["run", "--volume=./x:/usr/local/lib/node_modules", "mcp/slack"]),
            ("docker", &["run", "--mount=type=bind,src=.,dst=/app", "mcp/slack"]),
            ("docker", &["run", "--mount", "type=tmpfs,destination=/data,target=/app", "mcp/slack"]),
            ("docker", &["run", "-v", "./x:/data/../app", "mcp/slack"]),
            ("docker", &["run", "-v", "/app", "mcp/slack"]),
            ("docker", &["run", "mcp/slack", "sh", "-c", "evil"]),
            ("docker", &["run", "mcp/slack", "/usr/bin/env", "evil"]),
            ("docker", &["run", "--sig-proxy", "evil", "ghcr.io/github/github-mcp-server"]),
            ("bin/github-mcp-server", &["stdio"]),
            ("uvx", &["--from", "evil", "mcp-server-git"]),
            ("uvx", &["--from", "mcp-server-git", "evil"]),
            ("uvx", &["--with", "evil", "mcp-server-git"]),
            ("uvx", &["--from", "mcp-server-git", "--from", "evil", "mcp-server-git"]),
            ("uv", &["run", "mcp-server-git"]),
            ("uv", &["run", "--with", "evil", "mcp-server-git"]),
            ("uv", &["run", "--directory", "/srv/x", "--with", "mcp-server-git", "mcp-server-git"]),
            ("env", &["-S", "npx -y evil"]),
            ("env", &["-i", "npx", "-y", good]),
            ("env", &["PATH=/evil", "npx", "-y", good]),
            ("env", &["bin/github-mcp-server"]),
            ("sh", &["-c", "npx -y @modelcontextprotocol/server-github"]),
            ("node", &["/nowhere/node_modules/tavily-mcp/build/index.js"]),
        ];
        for (command, args) in cases {
            // Of a shell and the like the program is known, and no pack is about it.
            let named = named(command, args).filter(|named| Pack::about_package(named).unwrap().is_some());
            assert_eq!(named, None, "{command} {args:?}");
        }
        // The package that is run is what counts, not one that is mentioned.
        assert_eq!(named("npx", &["-y", "evil", "--compatible-with", good]).as_deref(), Some("npm:evil"));
        for name in [
            "PATH",
            "npm_config_registry",
            "NPM_CONFIG_USERCONFIG",
            "NODE_OPTIONS",
            "NODE_EXTRA_CA_CERTS",
            "UV_INDEX_URL",
            "LD_PRELOAD",
            "HOME",
            "XDG_CONFIG_HOME",
            "HTTPS_PROXY",
            "all_proxy",
            "STRIPE_API_BASE",
            "AWS_ENDPOINT_URL",
            "SSL_CERT_FILE",
        ] {
            let reach = Reach::Stdio {
                command: "npx".to_owned(),
                args: vec!["-y".to_owned(), good.to_owned()],
                env: [(name.to_owned(), "x".to_owned())].into(),
                cwd: None,
            };
            assert!(packages_of(&reach, nowhere()).is_empty(), "{name}");
        }
        let image = "ghcr.io/github/github-mcp-server";
        for args in [
            &["run", "-e", "HTTPS_PROXY=http://evil.example", image][..],
            &["run", "--env=NODE_OPTIONS=x", image],
            &["run", "--env-file", "x", image],
            &["run", image, "--api-base-url=http://evil.example"],
            &["run", image, "--proxy", "http://evil.example"],
        ] {
            assert_eq!(named("docker", args), None, "{args:?}");
        }
        let cwd = Some("x".into());
        let args = vec![good.to_owned()];
        let elsewhere = Reach::Stdio { command: "npx".to_owned(), args, env: BTreeMap::new(), cwd };
        assert!(packages_of(&elsewhere, nowhere()).is_empty());
        // Where the user's own service is, and keys, may be said.
        for (name, value) in [
            ("JIRA_URL", "https://jira.example"),
            ("HOMEASSISTANT_TOKEN", "x"),
            ("NODE_ENV", "production"),
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "x"),
        ] {
            let env = [(name.to_owned(), value.to_owned())].into();
            let reach = Reach::Stdio { command: "npx".to_owned(), args: vec![good.to_owned()], env, cwd: None };
            assert_eq!(packages_of(&reach, nowhere()).len(), 1, "{name}");
        }
    }

    #[test]
    fn only_an_address_under_its_own_certificate_names_a_server() {
        let of = |url: &str| {
            packages_of(&Reach::Http { url: url.to_owned(), headers: BTreeMap::new(), client: None }, nowhere()).pop()
        };
        assert_eq!(of("https://mcp.notion.com/mcp").as_deref(), Some("host:mcp.notion.com"));
        for url in
            ["http://mcp.notion.com/mcp", "https://mcp.notion.com:8443/", "https://mcp.notion.com@evil.example/", "x"]
        {
            assert_ne!(of(url).as_deref(), Some("host:mcp.notion.com"), "{url}");
        }
    }

    #[test]
    fn the_users_word_comes_before_the_command_line() {
        let settings = |value: &str| {
            let variables = [("UA_SERVER_PACKS".to_owned(), value.to_owned())].into();
            Settings::read(crate::Process { variables, ..crate::Process::default() })
        };
        let text = r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "@notionhq/notion-mcp-server"]}, "github": {"command": "x"}}}"#;
        let config = McpConfig::parse(text, "x").unwrap();
        let of = |value: &str| chosen(&settings(value), nowhere().folder, &config).unwrap();
        let some = |id: &str| Some(id.to_owned());
        assert_eq!(of(""), BTreeMap::from([("a".to_owned(), some("notion"))]), "the name alone vouches for nothing");
        let both = BTreeMap::from([("a".to_owned(), None), ("github".to_owned(), some("github"))]);
        assert_eq!(of("github=github, a=none"), both);
        assert!(
            chosen(&settings("github"), nowhere().folder, &config).unwrap_err().to_string().contains("server_packs")
        );
    }
}
