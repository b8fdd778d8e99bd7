use super::*;

fn names(base: &Path, command: &str, args: &[&str]) -> (Vec<String>, usize) {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let covered = covered(command, None, &args, &[], base, &Roots::default(), None);
    let name = |path: &PathBuf| path.strip_prefix(base).unwrap().display().to_string();
    (covered.files.iter().map(name).collect(), covered.warnings.len())
}

#[test]
fn whatever_an_interpreter_would_run_is_covered() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    for (file, text) in [
        ("srv", "print()"),
        ("one/main.py", "import lib"),
        ("one/lib.py", ""),
        ("one/notes.txt", ""),
        ("one/__pycache__/lib.pyc", ""),
        ("app/__main__.py", ""),
        ("pkg/tool/__init__.py", ""),
        ("data/readme.txt", ""),
        ("data/x.py", ""),
        ("server.log", "log"),
        ("js/start.js", ""),
        ("js/lib.js", ""),
    ] {
        fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
        fs::write(base.join(file), text).unwrap();
    }
    let of = |command: &str, args: &[&str]| names(base, command, args);
    assert_eq!(of("node", &["one/main.py"]), (vec!["one/lib.py".to_owned(), "one/main.py".to_owned()], 0));
    assert_eq!(of("python3", &["app/"]).0, ["app/__main__.py"]);
    assert!(of("python3", &["./srv"]).0.contains(&"srv".to_owned()));
    assert!(of("python3", &["-m", "pkg.tool"]).0.contains(&"pkg/tool/__init__.py".to_owned()));
    // The same in one word, and names that Node completes.
    for args in [&["-um", "pkg.tool"][..], &["-mpkg.tool"], &["-Imu.v"], &["-uBmpkg.tool"]] {
        let has_package = of("python3", args).0.contains(&"pkg/tool/__init__.py".to_owned());
        assert_eq!(has_package, args != ["-Imu.v"], "{args:?}");
    }
    assert_eq!(of("node", &["js/start"]).0, ["js/lib.js", "js/start.js"]);
    assert_eq!(of("node", &["--require=./js/lib", "server.log"]).0, ["js/lib.js", "js/start.js", "server.log"]);
    // A folder of data may change; a file that is named may be a script whatever it is called.
    assert_eq!(of("fs-server", &["data"]).0, [""; 0]);
    assert_eq!(of("python3", &["server.log"]).0, ["server.log"]);
    assert_eq!(
        of("awk", &["-f", "srv"]).0[0],
        "app/__main__.py",
        "of a program that is not known, everything that it names"
    );
    // What a script works on may change, and a person is told so; what stands before it may not.
    let (files, warnings) = of("python3", &["-u", "one/main.py", "--log", "server.log"]);
    assert_eq!((files, warnings), (vec!["one/lib.py".to_owned(), "one/main.py".to_owned()], 1));
    assert!(of("node", &["--require", "./server.log", "one/main.py"]).0.contains(&"server.log".to_owned()));
    assert!(of("node", &["--require", "data/x.py", "server.log"]).0.contains(&"server.log".to_owned()));
    assert_eq!(of("db-server", &["--db", "server.log"]), (vec![], 2));
    assert_eq!(of("python3", &["-c", "exec(open('srv').read())"]), (vec![], 1));
    assert_eq!(of("npm", &["start"]).1, 1);
}

#[test]
fn what_a_virtual_environment_runs_at_each_start_is_covered_and_the_rest_is_said_not_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    let packages = ".venv/lib/python3.13/site-packages";
    for file in [
        ".venv/pyvenv.cfg",
        ".venv/bin/python",
        &format!("{packages}/evil.pth"),
        &format!("{packages}/sitecustomize.py"),
        &format!("{packages}/pkg/__init__.py"),
        &format!("{packages}/pkg/server.py"),
        &format!("{packages}/other/__init__.py"),
        "srv/main.py",
    ] {
        fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
        fs::write(base.join(file), "").unwrap();
    }
    let always = [&format!("{packages}/evil.pth"), &format!("{packages}/sitecustomize.py"), ".venv/pyvenv.cfg"];
    let (files, warnings) = names(base, ".venv/bin/python", &["srv/main.py"]);
    assert_eq!((files[..3].to_vec(), files[3].as_str()), (always.map(str::to_owned).to_vec(), "srv/main.py"));
    assert_eq!(warnings, 1, "packages that it imports are not covered, and that is said");
    let (files, _) = names(base, "./.venv/bin/python", &["-m", "pkg.server"]);
    let has = |end: &str| files.iter().any(|file| file.ends_with(end));
    assert!(
        has("pkg/__init__.py") && has("pkg/server.py") && has("evil.pth") && !has("other/__init__.py"),
        "{files:?}"
    );
    // As most systems make it, `lib64` is a link to `lib`: nothing is listed twice. One that leads elsewhere counts by itself.
    std::os::unix::fs::symlink("lib", base.join(".venv/lib64")).unwrap();
    let (linked, _) = names(base, "./.venv/bin/python", &["-m", "pkg.server"]);
    assert_eq!(linked, files);
    fs::remove_file(base.join(".venv/lib64")).unwrap();
    let evil = "elsewhere/python3.13/site-packages/evil64.pth";
    fs::create_dir_all(base.join(evil).parent().unwrap()).unwrap();
    fs::write(base.join(evil), "").unwrap();
    std::os::unix::fs::symlink("../elsewhere", base.join(".venv/lib64")).unwrap();
    let (elsewhere, _) = names(base, "./.venv/bin/python", &["-m", "pkg.server"]);
    assert!(elsewhere.iter().any(|file| file.ends_with("evil64.pth")), "{elsewhere:?}");
    // The system's own interpreter, and one that only stands in a folder of that shape, have none.
    assert_eq!(names(base, "python3", &["srv/main.py"]), (vec!["srv/main.py".to_owned()], 0));
}

#[test]
fn a_folder_that_is_too_much_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..=MAX_FILES {
        fs::write(dir.path().join(format!("{number}.py")), "").unwrap();
    }
    let covered = covered("python3", None, &["0.py".to_owned()], &[], dir.path(), &Roots::default(), None);
    assert_eq!((covered.files.len(), covered.warnings.len()), (MAX_FILES, 1));
}

#[test]
fn s9_what_lies_beside_a_script_that_is_a_link_is_covered_where_it_really_is() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    for file in
        ["node_modules/srv/dist/index.js", "node_modules/srv/dist/lib.js", "real/main.py", "real/lib.py", "s/own.py"]
    {
        fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
        fs::write(base.join(file), "").unwrap();
    }
    fs::create_dir(base.join("node_modules/.bin")).unwrap();
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, base.join(from)).unwrap();
    link("../srv/dist/index.js", "node_modules/.bin/srv");
    link("../real/main.py", "s/link.py");
    let of = |command: &str, args: &[&str]| names(&base, command, args).0;
    assert!(of("node", &["node_modules/.bin/srv"]).contains(&"node_modules/srv/dist/lib.js".to_owned()));
    assert_eq!(of("python3", &["s/link.py"]), ["real/lib.py", "real/main.py", "s/link.py", "s/own.py"]);
    // Also of one that only lies beside the script.
    assert!(of("python3", &["s/own.py"]).contains(&"real/lib.py".to_owned()));
}

#[test]
fn s9_the_folder_that_a_launcher_is_told_to_work_in_is_covered() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    for file in
        ["o/server.py", "o/lib.py", "o/package.json", "o/Makefile", "o/uv.lock", "mod/__init__.py", "mod/lib.py"]
    {
        fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
        fs::write(base.join(file), "").unwrap();
    }
    let whole = ["o/Makefile", "o/lib.py", "o/package.json", "o/server.py", "o/uv.lock"];
    for (command, args) in [
        ("uv", &["--directory", "o", "run", "server.py"][..]),
        ("uv", &["run", "--directory", "o", "server.py"]),
        ("uv", &["run", "--directory=o", "some-entry"]),
        ("uv", &["run", "--project", "o", "server.py"]),
        ("/usr/bin/uv", &["--directory", "o", "run", "server.py"]),
        ("npm", &["--prefix", "o", "run", "x"]),
        ("pnpm", &["-C", "o", "start"]),
        ("poetry", &["-C", "o", "run", "x"]),
        ("make", &["-C", "o", "serve"]),
        ("sudo", &["nice", "make", "-Co", "serve"]),
    ] {
        let (files, warnings) = names(base, command, args);
        assert_eq!((files, warnings), (whole.map(str::to_owned).to_vec(), 1), "{command} {args:?}");
    }
    let has = |command: &str, args: &[&str], file: &str| names(base, command, args).0.contains(&file.to_owned());
    assert!(has("env", &["-C", "o", "python3", "server.py"], "o/lib.py"));
    for args in [&["-m", "runpy", "mod"][..], &["-m", "uvicorn", "mod:app"], &["-mpdb", "mod"]] {
        assert!(has("python3", args, "mod/lib.py"), "{args:?}");
    }
    // Where nothing is, that is said.
    let (files, warnings) = names(base, "uv", &["--directory", "nowhere", "run", "server.py"]);
    assert_eq!((files.len(), warnings), (0, 2));
}

#[test]
fn a_pipe_for_a_script_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("srv"), rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(names(dir.path(), "python3", &["srv"]).0, [""; 0]);
}

#[test]
fn what_runs_write_counts_only_for_a_script_that_names_it_or_lies_there() {
    let dir = tempfile::tempdir().unwrap();
    let (base, known) = (dir.path().join("work"), Roots::new(Some(dir.path().join("state"))));
    let root = base.join("RUNS");
    fs::create_dir(&base).unwrap();
    known.make(&root).unwrap();
    let write = |file: &str, text: &str| {
        fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
        fs::write(base.join(file), text).unwrap();
    };
    for file in ["srv.py", "lib.py", "RUNS/session_1/trace.json", "RUNS/session_1/made.py", "RUNS/locks/r.run"] {
        write(file, "x = 1");
    }
    // A checkout brings one of its own, with a number that the state folder does not know.
    write("theirs/.ua-root", &"0".repeat(32));
    write("theirs/session_1/evil.py", "");
    let of = |script: &str| {
        let covered = covered("python3", None, &[script.to_owned()], &[], &base, &known, None);
        let name = |path: &PathBuf| path.strip_prefix(&base).unwrap().display().to_string();
        (covered.files.iter().map(name).collect::<Vec<_>>(), covered.warnings)
    };
    let counts = ["lib.py", "srv.py", "theirs/.ua-root", "theirs/session_1/evil.py"];
    let (files, warnings) = of("srv.py");
    assert_eq!(files, counts);
    assert!(warnings.len() == 1 && warnings[0].starts_with("what runs write below "), "{warnings:?}");
    // One that is named counts.
    write("lib.py", "sys.path.append('RUNS')");
    let (files, warnings) = of("srv.py");
    let named = ["RUNS/.ua-root", "RUNS/session_1/made.py", "RUNS/session_1/trace.json"];
    assert_eq!(files, [&named[..], &counts].concat());
    assert!(warnings.len() == 1 && warnings[0].contains("lib.py names "), "{warnings:?}");
    write("lib.py", "");
    // So does one to which a map of names leads.
    write("package.json", r##"{"imports": {"#x": "./RUNS/session_1/made.js"}}"##);
    let (files, warnings) = of("srv.py");
    assert_eq!(&files[..3], named);
    assert!(warnings.len() == 1 && warnings[0].contains("package.json names "), "{warnings:?}");
    fs::remove_file(base.join("package.json")).unwrap();
    // A script that lies in a workspace counts with what lies beside it, and one in the root with what a person put there.
    assert_eq!(of("RUNS/session_1/made.py").0, &named[1..]);
    write("RUNS/top.py", "");
    write("RUNS/mine/a.py", "");
    assert_eq!(of("RUNS/top.py").0, ["RUNS/mine/a.py", "RUNS/top.py"]);
}

/// However many folders of runs lie beside a script, what may say their names is read once.
#[test]
fn a_file_is_read_once_for_the_names_of_all_folders_of_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let first = file("a.py", "open('RUNS'); open('OTHERS')");
    let mut said = Said::of(["RUNS", "OTHERS", "NONE"].into_iter().map(OsStr::new));
    let mut files = BTreeSet::from([first.clone()]);
    assert_eq!(said.by(OsStr::new("RUNS"), &files), Some(first.clone()));
    fs::write(&first, "").unwrap();
    assert_eq!(said.by(OsStr::new("OTHERS"), &files), Some(first.clone()), "it was read already");
    assert_eq!(said.by(OsStr::new("NONE"), &files), None);
    // What came since is looked at, too.
    files.insert(file("b.py", "NONE"));
    assert_eq!(said.by(OsStr::new("NONE"), &files), Some(dir.path().join("b.py")));
}

#[test]
fn a_file_that_ua_reads_counts_only_where_the_server_is_told_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    let write = |file: &str, text: &str| fs::write(base.join(file), text).unwrap();
    write("srv.py", "print()");
    write("job.json", r#"{"objective": "Write."}"#);
    write("policy.toml", "[[rule]]\nid = \"a\"\nname = \"send\"\napproval = \"ask\"\n");
    write(".mcp.json", r#"{"mcpServers": {}}"#);
    write("settings.json", "{}");
    let of = |args: &[&str], given: &[&str]| {
        let given: Vec<(&str, &str)> = given.iter().map(|value| ("X", *value)).collect();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let covered = covered("python3", None, &args, &given, base, &Roots::default(), None);
        let name = |path: &PathBuf| path.strip_prefix(base).unwrap().display().to_string();
        (covered.files.iter().map(name).collect::<Vec<_>>(), covered.warnings)
    };
    let (files, warnings) = of(&["srv.py"], &[]);
    assert_eq!(files, ["settings.json", "srv.py"]);
    assert!(warnings.len() == 1 && warnings[0].contains("of ua beside it may change without a question"));
    assert!(["job.json", "policy.toml", ".mcp.json"].iter().all(|name| warnings[0].contains(name)), "{warnings:?}");
    // In an argument, in a variable, in a script, and in other files that count.
    assert_eq!(of(&["srv.py", "--load=job.json"], &[]).0, ["job.json", "settings.json", "srv.py"]);
    assert_eq!(of(&["srv.py"], &["/else/where/policy.toml"]).0, ["policy.toml", "settings.json", "srv.py"]);
    write("srv.py", "json.load(open('job.json'))");
    let (files, warnings) = of(&["srv.py"], &[]);
    assert_eq!(files, ["job.json", "settings.json", "srv.py"]);
    assert!(warnings[0].contains("srv.py names ") && warnings[0].ends_with("job.json, so a change of that asks again"));
    write("srv.py", "print()");
    write("settings.json", r#"{"more": "./job"}"#);
    assert_eq!(of(&["srv.py"], &[]).0, ["job.json", "settings.json", "srv.py"]);
    // What is no job any more counts as whatever else lies there.
    write("settings.json", "{}");
    write("job.json", r#"{"objective": "Write.", "main": "evil.js"}"#);
    assert_eq!(of(&["srv.py"], &[]).0, ["job.json", "settings.json", "srv.py"]);
}

/// A way to start something: what there is, how it is started, with which variables, and what may not change without a question.
type Way<'w> = (&'w str, &'w [&'w str], &'w [(&'w str, &'w str)], &'w [&'w str], &'w str);

#[test]
fn s9_what_a_way_to_start_something_runs_counts_in_whatever_language() {
    let ways: &[Way<'_>] = &[
        ("cargo", &["run", "--manifest-path", "p/Cargo.toml"], &[], &["p/Cargo.toml"], "p/src/main.rs"),
        ("cargo", &["run"], &[], &["Cargo.toml"], ".cargo/config.toml"),
        ("task", &["serve"], &[], &[], "Taskfile.yml"),
        ("just", &["serve"], &[], &[], "justfile"),
        ("mise", &["run", "serve"], &[], &[], ".mise.toml"),
        ("make", &["-f", "p/x.mk", "serve"], &[], &["p/x.mk"], "p/other.inc"),
        ("uvx", &["--from", "./p", "tool"], &[], &["p/pyproject.toml"], "p/a.py"),
        ("pipx", &["run", "--spec", "./p", "t"], &[], &["p/setup.cfg"], "p/setup.py"),
        ("npx", &["./p"], &[], &["p/package.json"], "p/a.js"),
        ("npx", &["tool"], &[], &["package.json"], "node_modules/.bin/tool"),
        ("deno", &["run", "-A", "main.ts"], &[], &[], "main.ts"),
        ("deno", &["run", "-A", "main.ts"], &[], &["main.ts"], "lib/h.ts"),
        ("deno", &["run", "-A", "main.ts"], &[], &["main.ts"], "deno.jsonc"),
        ("deno", &["serve", "main.ts"], &[], &[], "main.ts"),
        ("deno", &["main.ts"], &[], &["main.ts"], "deno.json"),
        ("env", &["A=b", "deno", "run", "main.ts"], &[], &[], "main.ts"),
        ("conda", &["run", "-n", "e", "main.x"], &[], &[], "main.x"),
        ("timeout", &["9", "srv.sh"], &[], &[], "srv.sh"),
        ("uv", &["run", "serve", "tool"], &[], &[], "lib/s.py"),
        ("npm", &["start", "exec"], &[], &["package.json"], "lib/s.js"),
        ("nix", &["run", "."], &[], &[], "flake.nix"),
        ("nix", &["run", "./p#x"], &[], &["p/x"], "p/flake.nix"),
        ("dotnet", &["run", "--project", "p"], &[], &["p/a.csproj"], "p/a.cs"),
        ("dotnet", &["run", "--project", "p/a.csproj"], &[], &["p/a.csproj"], "p/b.razor"),
        ("swift", &["run", "--package-path", "p"], &[], &["p/x"], "p/Sources/m.swift"),
        ("gradle", &["run"], &[], &[], "build.gradle"),
        ("./gradlew", &["run"], &[], &["gradlew"], "build.gradle.kts"),
        ("mvn", &["exec:java"], &[], &[], "pom.xml"),
        ("docker", &["compose", "run", "x"], &[], &[], "compose.yml"),
        ("docker", &["compose", "-f", "p/c.yml", "up"], &[], &["p/c.yml"], "p/Dockerfile"),
        ("docker", &["run", "-v", "./p:/p", "img", "python", "/p/a.py"], &[], &["p/x"], "p/a.py"),
        ("docker", &["run", "--volume=./p:/p", "img"], &[], &["p/x"], "p/a.py"),
        ("docker", &["run", "--mount", "type=bind,source=./p,target=/p", "img"], &[], &["p/x"], "p/a.py"),
        ("julia", &["--project=p", "sub/s.jl"], &[], &["sub/s.jl", "p/Project.toml"], "p/src/P.jl"),
        ("Rscript", &["sub/s.R"], &[], &["sub/s.R"], ".Rprofile"),
        ("Rscript", &["sub/s.R"], &[], &["sub/s.R"], "sub/h.R"),
        ("socat", &["STDIO", "EXEC:./x/s.sh"], &[], &[], "x/s.sh"),
        ("node", &["-r", "dotenv/config", "sub/s.js"], &[], &["sub/s.js"], "node_modules/dotenv/config.js"),
        ("node", &["--import=@a/b", "sub/s.js"], &[], &["sub/s.js"], "node_modules/@a/b/index.mjs"),
        ("node", &["-rhook", "sub/s.js"], &[], &["sub/s.js"], "node_modules/hook.js"),
        ("lua5.4", &["sub/s.lua"], &[], &["sub/s.lua"], "socket.lua"),
        ("pipx", &["run", "pkg"], &[], &[], "__pypackages__/3.12/lib/bin/pkg"),
        ("git", &["-c", "alias.x=!./x/s", "x"], &[], &[], "x/s"),
        ("perl", &["-Ix", "-MH", "sub/s.pl"], &[], &["sub/s.pl"], "x/H.pm"),
        ("perl", &["-I", "x", "-MH", "sub/s.pl"], &[], &["sub/s.pl"], "x/H.pm"),
        ("ruby", &["-I", "x", "-rh", "sub/s.rb"], &[], &["sub/s.rb"], "x/h.rb"),
        ("java", &["-cp", "cls:lib/*", "Main"], &[], &["lib/a.jar"], "cls/Main.class"),
        ("java", &["-cp", "cls:lib/*", "Main"], &[], &["cls/Main.class"], "lib/a.jar"),
        ("java", &["-javaagent:x/ag.jar", "-jar", "a.jar"], &[], &["a.jar"], "x/ag.jar"),
        ("java", &["@x/args"], &[], &["a.jar"], "x/args"),
        ("java", &["@args.txt"], &[], &["a.jar"], "args.txt"),
        // An installed module looks for what it imports in the folder that it is started in.
        ("python3", &["-m", "json.tool"], &[], &[], "json.py"),
        ("python3", &["-mjson.tool"], &[], &["run.py"], "argparse.py"),
        ("python3", &["-u", "-m", "mcp_server_fetch"], &[], &[], "typing_extensions/__init__.py"),
        ("python3", &["sub/s.py"], &[("PYTHONPYCACHEPREFIX", "pc")], &["sub/s.py"], "pc/usr/lib/json.cpython-311.pyc"),
        ("npx", &["-y", "pkg@1.0.0"], &[("npm_config_cache", "nc")], &[], "nc/_npx/1/node_modules/pkg/index.js"),
        ("uvx", &["pkg==1"], &[("UV_CACHE_DIR", "uc")], &[], "uc/archive-v0/1/pkg/__init__.py"),
        ("db-server", &[], &[("OPENSSL_MODULES", "om")], &[], "om/legacy.so"),
        ("db-server", &[], &[("QT_PLUGIN_PATH", "qt")], &[], "qt/p.so"),
        ("node", &["sub/s.js"], &[("NODE_OPTIONS", "-r \"./h d.cjs\"")], &["sub/s.js"], "h d.cjs"),
        ("node", &["sub/s.js"], &[("NODE_OPTIONS", "--require=\"./h\\d.cjs\"")], &["sub/s.js"], "hd.cjs"),
        ("env", &["-S", "python3 x/run.py"], &[], &[], "x/run.py"),
        ("env", &["-iS", "A=b python3 x/run.py"], &[], &[], "x/run.py"),
        ("env", &["--split-string=nice -n 5 node x/run.js"], &[], &[], "x/run.js"),
        ("env", &["PYTHONPATH=lib", "python3", "sub/s.py"], &[], &["sub/s.py"], "lib/h.py"),
        ("env", &["-S", "PYTHONPATH=lib python3 sub/s.py"], &[], &["sub/s.py"], "lib/h.py"),
        ("dotenv", &["-f", "e.env", "run", "python3", "x/s.py"], &[], &["x/s.py"], "e.env"),
        ("node", &["--env-file=e.env", "sub/s.js"], &[], &["sub/s.js"], "e.env"),
        ("python3", &["-m", "notes"], &[("PYTHONPATH", "src")], &[], "src/notes/__main__.py"),
        ("python3", &["sub/s.py"], &[("PYTHONPATH", "/nope:lib")], &["sub/s.py"], "lib/h.py"),
        ("python3", &["sub/s.py"], &[("PYTHONSTARTUP", "./x/st.txt")], &["sub/s.py"], "x/st.txt"),
        ("python3", &["sub/s.py"], &[("PYTHONHOME", "ph")], &["sub/s.py"], "ph/lib/python3.11/os.py"),
        ("python3", &["sub/s.py"], &[("PYTHONUSERBASE", "ub")], &["sub/s.py"], "ub/lib/p/usercustomize.py"),
        ("python3", &["sub/s.py"], &[("LD_PRELOAD", "./x/e.so")], &["sub/s.py"], "x/e.so"),
        ("python3", &["sub/s.py"], &[("LD_LIBRARY_PATH", "x")], &["sub/s.py"], "x/libz.so.1"),
        ("python3", &["sub/s.py"], &[("GIT_CONFIG_GLOBAL", "x/gc")], &["sub/s.py"], "x/gc"),
        ("python3", &["sub/s.py"], &[("WHATEVER", "x/plugin.py")], &["sub/s.py"], "x/plugin.py"),
        ("node", &["sub/s.js"], &[("NODE_OPTIONS", "--require ./x/r.js")], &["sub/s.js"], "x/r.js"),
        ("node", &["sub/s.js"], &[("NODE_OPTIONS", "--require=./x/r")], &["sub/s.js"], "x/r.js"),
        ("node", &["sub/s.js"], &[("NODE_PATH", "np")], &["sub/s.js"], "np/h.js"),
        ("node", &["sub/s.js"], &[("XDG_CONFIG_HOME", "h")], &["sub/s.js"], "h/x/c"),
        ("bash", &["sub/s.sh"], &[("BASH_ENV", "x/be")], &["sub/s.sh"], "x/be"),
        ("bash", &["sub/s.sh"], &[("PATH", "x:/usr/bin:/bin")], &["sub/s.sh"], "x/foo"),
        ("bash", &["-l", "sub/s.sh"], &[("HOME", "h")], &["sub/s.sh"], "h/.bash_profile"),
        ("perl", &["sub/s.pl"], &[("PERL5LIB", "x")], &["sub/s.pl"], "x/H.pm"),
        ("perl", &["sub/s.pl"], &[("PERL5OPT", "-Ix -MH")], &["sub/s.pl"], "x/H.pm"),
        ("ruby", &["sub/s.rb"], &[("RUBYOPT", "-r./x/h")], &["sub/s.rb"], "x/h.rb"),
        ("lua", &["s.lua"], &[("LUA_PATH", "x/?.lua;;")], &["s.lua"], "x/h.lua"),
        ("lua", &["sub/s.lua"], &[("LUA_INIT", "@x/i.lua")], &["sub/s.lua"], "x/i.lua"),
        // A part that is empty is the folder that the program works in.
        ("python3", &["sub/s.py"], &[("PYTHONPATH", ":")], &["sub/s.py"], "sitecustomize.py"),
        ("python3", &["sub/s.py"], &[("PYTHONPATH", "/usr/lib/a::/usr/lib/b")], &["sub/s.py"], "sitecustomize.py"),
        ("python3", &["sub/s.py"], &[("LD_LIBRARY_PATH", ":/usr/lib")], &["sub/s.py"], "libz.so.1"),
        ("python3", &["sub/s.py"], &[("LD_LIBRARY_PATH", "/usr/lib:")], &["sub/s.py"], "libz.so.1"),
        ("env", &["PATH=:/usr/bin", "python3", "sub/s.py"], &[], &["sub/s.py"], "python3"),
        ("bash", &["sub/s.sh"], &[("PATH", "")], &["sub/s.sh"], "foo"),
        ("perl", &["sub/s.pl"], &[("PERL5LIB", ":/usr/share/perl5")], &["sub/s.pl"], "H.pm"),
        ("java", &["-jar", "a.jar"], &[("JAVA_TOOL_OPTIONS", "-javaagent:x/b.jar")], &["a.jar"], "x/b.jar"),
    ];
    for (command, args, variables, others, counts) in ways {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        for file in others.iter().chain([counts]) {
            fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs::write(base.join(file), "").unwrap();
        }
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let covered = covered(command, None, &args, variables, base, &Roots::default(), None);
        assert!(covered.files.contains(&base.join(counts)), "{command} {args:?} {variables:?}: {:?}", covered.files);
        // It is gone, and another one comes.
        let (before, path) = (covered.files, base.join(counts));
        fs::remove_file(&path).unwrap();
        let without = super::covered(command, None, &args, variables, base, &Roots::default(), None).files;
        assert_ne!(before, without, "{command} {args:?}");
    }
}

/// Options that keep Python from looking in the folder that it works in, and what a file of arguments names.
#[test]
fn s9_what_is_not_looked_at_does_not_count_and_what_a_file_of_arguments_names_does() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    for file in ["json.py", "Good.java", "more"] {
        fs::write(base.join(file), "").unwrap();
    }
    for args in [&["-I", "-m", "json.tool"][..], &["-uP", "-m", "json.tool"], &["-Pmjson.tool"]] {
        assert_eq!(names(base, "python3", args).0, [""; 0], "{args:?}");
    }
    fs::write(base.join("args.txt"), "--source 17 \"@more\"\nGood.java").unwrap();
    let counted = names(base, "java", &["@args.txt"]).0;
    assert!(["Good.java", "args.txt", "more"].iter().all(|file| counted.contains(&(*file).to_owned())), "{counted:?}");
    // One that names itself is read to its end.
    fs::write(base.join("args.txt"), "@args.txt").unwrap();
    assert!(names(base, "java", &["@args.txt"]).0.contains(&"args.txt".to_owned()));
}

#[test]
fn s9_what_a_server_works_on_may_change_and_in_a_launchers_folder_only_what_is_data() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    for file in [
        "Cargo.toml",
        "src/main.rs",
        "README.md",
        "data/a.csv",
        "data/x.json",
        "app.log",
        "notes.db-wal",
        "icon.svg",
        "requirements.txt",
        "node_modules/a/index.js",
        "Taskfile.yml",
    ] {
        fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
        fs::write(base.join(file), "").unwrap();
    }
    let counted =
        ["Cargo.toml", "Taskfile.yml", "data/x.json", "node_modules/a/index.js", "requirements.txt", "src/main.rs"];
    assert_eq!(names(base, "cargo", &["run"]), (counted.map(str::to_owned).to_vec(), 1));
    assert_eq!(names(base, "cargo", &["run", "--", "./data"]).0, counted);
    // A variable that loads nothing names a folder of data.
    let variables = [("DATA_DIR", "./data"), ("LOG", "app.log"), ("TABLE", "data/a.csv")];
    let covered = covered("db-server", None, &[], &variables, base, &Roots::default(), None);
    assert_eq!(covered.files, BTreeSet::new());
    // The system's folders are not the checkout's.
    let far = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/tmp"),
        ("LD_LIBRARY_PATH", "/usr/lib"),
        // Python reads one that is empty as none.
        ("PYTHONPATH", ""),
    ];
    assert_eq!(super::covered("db-server", None, &[], &far, base, &Roots::default(), None).files, BTreeSet::new());
}

#[test]
fn s9_what_was_fetched_or_built_leaves_room_for_what_a_project_is_made_of() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    for (folder, count) in [("build", MAX_FILES), ("node_modules/a", MAX_FILES), ("src", 3), ("p/target", MAX_FILES)] {
        fs::create_dir_all(base.join(folder)).unwrap();
        for number in 0..count {
            fs::write(base.join(folder).join(format!("{number}.js")), "").unwrap();
        }
    }
    fs::write(base.join("package.json"), "{}").unwrap();
    let (files, warnings) = names(base, "npm", &["start"]);
    assert!(
        ["package.json", "src/0.js", "src/1.js", "src/2.js"].iter().all(|file| files.contains(&(*file).to_owned()))
    );
    assert!(files.len() == MAX_FILES && warnings > 1, "{} {warnings}", files.len());
}

/// What decides, of the folder that a launcher works in and of those above it, which package it runs: whatever of it comes later is noticed.
#[test]
fn s9_a_launcher_that_fetches_takes_what_the_checkout_brings_and_that_counts() {
    const NPX: &[&[&str]] = &[
        &["npx", "-y", "weather-mcp@1.0.0"],
        &["npx", "--package=weather-mcp@1.0.0", "weather"],
        &["env", "A=b", "npx", "-y", "weather-mcp@1.0.0"],
        &["pnpm", "dlx", "weather-mcp@1.0.0"],
        &["npm", "exec", "--", "weather-mcp@1.0.0"],
        &["sh", "-c", "exec npx -y weather-mcp@1.0.0"],
        &["nobody-knows", "npx", "weather-mcp@1.0.0"],
        &["npx", "-y", "@weather/weather-mcp@1.0.0"],
    ];
    const UVX: &[&[&str]] = &[&["uvx", "weather-mcp==1.0.0"], &["uv", "tool", "run", "weather-mcp==1.0.0"]];
    let node = [
        "node_modules/weather-mcp/index.js",
        "node_modules/@weather/weather-mcp/index.js",
        "node_modules/.bin/weather-mcp",
        ".npmrc",
        "package.json",
        "bunfig.toml",
    ];
    let python = ["uv.toml", "pyproject.toml", ".python-version"];
    for (lines, brought) in [(NPX, &node[..]), (UVX, &python)] {
        for line in lines {
            for file in brought {
                for above in ["", "../", "../../"] {
                    let dir = tempfile::tempdir().unwrap();
                    let home = dir.path().canonicalize().unwrap();
                    let base = home.join("projects/checkout/sub");
                    fs::create_dir_all(&base).unwrap();
                    let args: Vec<String> = line[1..].iter().map(|arg| (*arg).to_owned()).collect();
                    let now = || {
                        let covered = covered(line[0], None, &args, &[], &base, &Roots::default(), Some(&home));
                        let contents =
                            covered.files.iter().map(|file| (file.clone(), fs::read(file).unwrap_or_default()));
                        (contents.collect::<Vec<_>>(), covered.warnings)
                    };
                    // A name of another scope is another package.
                    let is_meant = file.contains("@weather") == line.iter().any(|word| word.starts_with("@weather"))
                        || !file.contains("node_modules")
                        || file.contains(".bin");
                    let before = now();
                    let path = base.join(above).join(file);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(&path, "one").unwrap();
                    let there = now();
                    assert_eq!(before.0 != there.0, is_meant, "{line:?} {above}{file}");
                    assert_eq!(
                        there.1.len() > before.1.len(),
                        is_meant,
                        "it is said: {line:?} {above}{file} {:?}",
                        there.1
                    );
                    fs::write(&path, "another").unwrap();
                    assert_eq!(there.0 != now().0, is_meant, "{line:?} {above}{file}");
                }
            }
        }
    }
}

/// A project that has the package installed is not the package: whoever adds a file to it is asked nothing, as long as the launcher cannot run that.
#[test]
fn s9_a_file_beside_a_package_that_is_fetched_counts_only_where_it_may_be_run() {
    for (project, counts) in [
        (r#"{"name": "night", "dependencies": {"mail-server": "^1.0.0"}}"#, false),
        (r#"{"name": "night", "dependencies": {"mail-server": "file:../elsewhere"}}"#, false),
        (r#"{"name": "night", "devDependencies": {"mail-server": "file:."}}"#, true),
        (r#"{"name": "mail-server"}"#, true),
        (r#"{"name": "@ours/mail-server"}"#, true),
        (r#"{"name": "night", "bin": {"mail-server": "./report.js"}}"#, true),
        (r#"{"name": "night", "directories": {"bin": "mail-server"}}"#, true),
        (r#"{"name": "night", "workspaces": ["mail-server"]}"#, true),
        ("mail-server, and no JSON", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap().join("project");
        fs::create_dir_all(base.join("node_modules/mail-server")).unwrap();
        fs::write(base.join("node_modules/mail-server/index.js"), "").unwrap();
        fs::write(base.join("package.json"), project).unwrap();
        fs::write(base.join("report.js"), "").unwrap();
        let args = ["-y", "mail-server"].map(str::to_owned);
        let files = covered("npx", None, &args, &[], &base, &Roots::default(), None).files;
        let has = |name: &str| files.contains(&base.join(name));
        assert_eq!(has("report.js"), counts, "{project}");
        assert!(has("node_modules/mail-server/index.js") && has("package.json"), "{project}: {files:?}");
    }
}

/// A program that nobody knows is started in a folder with code: what of it runs is covered, or said not to be.
#[test]
fn s9_a_program_that_may_find_code_by_itself_is_covered_or_named() {
    for line in [
        "uvicorn app.main:app",
        "gunicorn -w 2 app.main:app",
        "git mcp",
        "gdb -x g.txt",
        "pwsh -File s.ps1",
        "lua -l foo",
        "tox -e srv",
        "nox -s srv",
        "nodemon",
        "clojure -M:mcp",
        "bb mcp",
        "dune exec srv",
        "rails runner x",
        "devbox run srv",
        "nix develop -c srv",
        "invoke srv",
        "nobody-knows --this",
        "/opt/there/nobody-knows",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        fs::create_dir_all(base.join("app")).unwrap();
        let mut words = line.split(' ').map(str::to_owned);
        let (command, args) = (words.next().unwrap(), words.collect::<Vec<_>>());
        let of = || covered(&command, None, &args, &[], base, &Roots::default(), None);
        let says = |covered: &Covered| covered.warnings.iter().any(|warning| warning.contains("may run code of"));
        // Where there is none, there is nothing to say.
        assert!(!says(&of()), "{line}");
        fs::write(base.join("app/main.py"), "app = 1").unwrap();
        let covered = of();
        assert!(covered.files.contains(&base.join("app/main.py")) || says(&covered), "{line}: {covered:?}");
    }
    // A script that is found has what lies beside it covered.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.py"), "").unwrap();
    for line in [&["python3", "s.py"][..], &["./s.py"]] {
        let args: Vec<String> = line[1..].iter().map(|arg| (*arg).to_owned()).collect();
        let covered = covered(line[0], None, &args, &[], dir.path(), &Roots::default(), None);
        assert_eq!(covered.warnings, [""; 0], "{line:?}");
    }
}

/// A script in the home folder lies beside everything there, and beside what says that it is trusted.
#[test]
fn what_ua_notes_for_the_user_is_no_code_of_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let (home, state) = (dir.path(), dir.path().join(".local/state/ua"));
    fs::create_dir_all(&state).unwrap();
    for file in ["server.py", ".local/lib.py", ".local/state/ua/trust.json", ".local/state/ua/logins/a.json"] {
        fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        fs::write(home.join(file), "{}").unwrap();
    }
    let script = home.join("server.py").display().to_string();
    let of = |known: &Roots| {
        covered("python3", None, std::slice::from_ref(&script), &[], &home.join("proj"), known, Some(home)).files
    };
    let known = Roots::new(Some(state));
    assert_eq!(of(&known), BTreeSet::from([home.join("server.py"), home.join(".local/lib.py")]));
    assert_eq!(of(&Roots::default()).len(), 4, "without it they would count");
}
