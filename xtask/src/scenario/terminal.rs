//! The program on a terminal, for what it asks there.

use std::io::{Read as _, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::world::Outside;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(1);
const GLANCE: Duration = Duration::from_millis(20);

pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    drawn: Arc<Mutex<Vec<u8>>>,
    keys: Box<dyn Write + Send>,
    // Open as long as it is looked at.
    _master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    pub(crate) fn start(world: &Outside, args: &[&str]) -> anyhow::Result<Self> {
        let size = PtySize { rows: 40, cols: 160, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size)?;
        let mut command = CommandBuilder::new(world.program());
        command.args(args);
        command.args(["--root", &world.path("root").display().to_string()]);
        command.cwd(world.path("work"));
        command.env_clear();
        command.env("TERM", "xterm-256color");
        for (name, value) in world.environment() {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command)?;
        drop(pair.slave);
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let mut output = pair.master.try_clone_reader()?;
        let kept = Arc::clone(&drawn);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error is how a terminal ends whose program is gone.
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
            }
        });
        let keys = pair.master.take_writer()?;
        Ok(Self { child, drawn, keys, _master: pair.master })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits until a question stands there: a question mark, whatever the words.
    pub(crate) fn until_it_asks(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        while !self.text().contains('?') {
            if let Some(status) = self.child.try_wait()? {
                bail!("the program ended ({status:?}) before it asked: {}", self.text());
            }
            ensure!(started.elapsed() < PATIENCE, "the program does not ask: {}", self.text());
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    pub(crate) fn type_line(&mut self, text: &str) -> anyhow::Result<()> {
        Ok(self.keys.write_all(format!("{text}\r").as_bytes())?)
    }

    /// Waits for the end, and says with which code.
    pub(crate) fn end(mut self) -> anyhow::Result<u32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.exit_code());
            }
            ensure!(started.elapsed() < PATIENCE, "the program does not end: {}", self.text());
            std::thread::sleep(GLANCE);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
    }
}
