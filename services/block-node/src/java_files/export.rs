//! `block-node export DIRECTORY`: writes blocks as files of the Java node, each verified once more.
//!
//! A file is written under another name, which ends with `.part`, and renamed when it is whole. What is there already is compared with what
//! it should be, and kept if it is that: so an export that was stopped goes on, and what was damaged is written again. Parts that a stopped
//! export has left are removed. All of it is safe on disk when it reports success.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use wal::files::Directory;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{Archive, JavaFileError, Packing, file_name, historic_path, pack, read_recent, recent_path};
use crate::block::Chain;
use crate::console;
use crate::store::Reader;
use crate::verify;

/// Behind the name of a file that is not whole.
const PART: &str = ".part";
/// Between two lines that tell how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// What is exported, and where to.
#[derive(Clone, Debug, Args)]
pub struct ExportFlags {
    /// Directory to write into; it is created where it does not exist
    pub directory: PathBuf,
    /// Directory of the blocks; a server must not have it open
    #[arg(long, visible_alias = "data-dir", env = "FILES_RECENT_LIVE_ROOT_PATH", default_value = "block-node-data")]
    pub files_recent_live_root_path: PathBuf,
    /// ZIP files of ten to this power of blocks, as far as all of them are there; the others, and without this flag all, in files of
    /// their own
    #[arg(long, env = "FILES_HISTORIC_POWERS_OF_TEN_PER_ZIP_FILE_CONTENTS", value_parser = clap::value_parser!(u32).range(1..=6))]
    pub powers_of_ten_per_zip_file_contents: Option<u32>,
    /// First block; without it the first that is stored
    #[arg(long)]
    pub start: Option<u64>,
    /// Last block; without it the last that is stored
    #[arg(long)]
    pub end: Option<u64>,
}

/// What was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Blocks in files that were written.
    pub written: u64,
    /// Blocks in files that were there, and right.
    pub kept: u64,
    /// Each block that could not be exported, and why.
    pub wrong: Vec<(u64, String)>,
}

/// Exports, tells on standard error how far it is, and prints what was exported.
pub fn run(flags: &ExportFlags) -> Result<(), Box<dyn Error>> {
    let store = verify::open(&flags.files_recent_live_root_path)?;
    let reader = store.reader();
    let last = reader.last().ok_or("there are no blocks to export")?;
    let blocks = flags.start.unwrap_or(reader.first())..=flags.end.unwrap_or(last);
    if *blocks.start() < reader.first() || *blocks.end() > last || blocks.is_empty() {
        return Err(format!("--start, --end: blocks {} to {last} are there", reader.first()).into());
    }
    let (began, mut told) = (Instant::now(), Instant::now());
    let first = *blocks.start();
    let tell = |number: u64| {
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            let rate = (number + 1 - first) as f64 / began.elapsed().as_secs_f64();
            console::tell(format_args!("block {number} of {last}: {rate:.0} blocks/s"));
        }
    };
    let exported = export(&reader, blocks, &flags.directory, flags.powers_of_ten_per_zip_file_contents, tell)?;
    for (number, why) in &exported.wrong {
        console::print(format_args!("block {number}: {why}\n"))?;
    }
    console::print(format_args!(
        "{} blocks written, {} were there, {} could not be exported\n",
        exported.written,
        exported.kept,
        exported.wrong.len()
    ))?;
    match exported.wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{} blocks could not be exported; see above", exported.wrong.len()).into()),
    }
}

/// Exports these blocks; `tell` hears the number of each.
pub fn export<D: Directory>(
    reader: &Reader<D>,
    blocks: RangeInclusive<u64>,
    directory: &Path,
    power_of_ten: Option<u32>,
    mut tell: impl FnMut(u64),
) -> Result<Exported, JavaFileError> {
    fs::create_dir_all(directory).map_err(failed(directory))?;
    remove_parts(directory)?;
    let mut export = Export { reader, directory, exported: Exported::default() };
    let mut next = *blocks.start();
    while next <= *blocks.end() {
        let zipped = power_of_ten.map(|power| (power, 10_u64.pow(power)));
        let zipped = zipped.filter(|(_, count)| next.is_multiple_of(*count) && next + count - 1 <= *blocks.end());
        let count = match zipped {
            Some((power, count)) if export.archive(next..=next + count - 1, power, &mut tell)? => count,
            // One at a time, so that the next ZIP file is not missed.
            _ => {
                export.recent(next)?;
                tell(next);
                1
            }
        };
        next += count;
    }
    let folder = File::open(directory).map_err(failed(directory))?;
    rustix::fs::syncfs(folder).map_err(|error| JavaFileError::Files(directory.to_owned(), error.into()))?;
    Ok(export.exported)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> JavaFileError {
    move |error| JavaFileError::Files(path.to_owned(), error)
}

/// Removes what a stopped export has left. Only names that it makes are touched.
fn remove_parts(directory: &Path) -> Result<(), JavaFileError> {
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
            let entry = entry.map_err(failed(&folder))?;
            let (path, name) = (entry.path(), entry.file_name());
            let is_part = name.to_str().and_then(|name| name.strip_suffix(PART));
            if entry.file_type().map_err(failed(&path))?.is_dir() {
                folders.push(path);
            } else if is_part.is_some_and(|name| name.ends_with(".blk.zstd") || name.ends_with("s.zip")) {
                fs::remove_file(&path).map_err(failed(&path))?;
            }
        }
    }
    Ok(())
}

struct Export<'a, D: Directory> {
    reader: &'a Reader<D>,
    directory: &'a Path,
    exported: Exported,
}

impl<D: Directory> Export<'_, D> {
    /// A block of the store, verified by itself: what it continues is compared by whoever imports it.
    fn block(&self, number: u64) -> Result<Vec<u8>, String> {
        let stored = self.reader.read(number).map_err(|error| error.to_string())?;
        verify::check(&stored, &Chain::unknown(number)).map(|verified| verified.bytes)
    }

    fn recent(&mut self, number: u64) -> Result<(), JavaFileError> {
        let block = match self.block(number) {
            Ok(block) => block,
            Err(why) => {
                self.exported.wrong.push((number, why));
                return Ok(());
            }
        };
        let path = self.directory.join(recent_path(number));
        if read_recent(&path, number, Packing::Zstd, block.len()).is_ok_and(|there| there == block) {
            self.exported.kept += 1;
            return Ok(());
        }
        let packed = pack(&block).map_err(|error| JavaFileError::Content(number, error))?;
        whole(&path, |file| file.write_all(&packed))?;
        self.exported.written += 1;
        Ok(())
    }

    /// A ZIP file; `false`: not all of its blocks are right.
    fn archive(
        &mut self,
        blocks: RangeInclusive<u64>,
        power_of_ten: u32,
        mut tell: impl FnMut(u64),
    ) -> Result<bool, JavaFileError> {
        let path = self.directory.join(historic_path(*blocks.start(), power_of_ten));
        let count = blocks.end() - blocks.start() + 1;
        if self.is_there(&path, blocks.clone()) {
            self.exported.kept += count;
            return Ok(true);
        }
        let mut is_complete = true;
        whole(&path, |file| {
            let mut zip = ZipWriter::new(file);
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
            for number in blocks {
                let Ok(block) = self.block(number) else {
                    is_complete = false;
                    // No file is made of it.
                    return Err(io::ErrorKind::NotFound.into());
                };
                zip.start_file(file_name(number), options).map_err(io::Error::from)?;
                zip.write_all(&pack(&block)?)?;
                tell(number);
            }
            zip.finish().map_err(io::Error::from)?;
            Ok(())
        })
        .or_else(|error| if is_complete { Err(error) } else { Ok(()) })?;
        if is_complete {
            self.exported.written += count;
        }
        Ok(is_complete)
    }

    /// Whether a ZIP file is there that has exactly these blocks.
    fn is_there(&self, path: &Path, blocks: RangeInclusive<u64>) -> bool {
        let Ok(file) = File::open(path) else { return false };
        let Ok(mut archive) = Archive::open(BufReader::new(file)) else { return false };
        archive.numbers().eq(blocks.clone())
            && blocks.into_iter().all(|number| {
                let block = self.block(number);
                block.is_ok_and(|block| archive.read(number, block.len()).is_ok_and(|there| there == block))
            })
    }
}

/// Writes a file that is whole under its name, or not there.
fn whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), JavaFileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut part = path.as_os_str().to_owned();
    part.push(PART);
    let part = PathBuf::from(part);
    let written = || {
        let mut file = BufWriter::new(File::create(&part)?);
        write(&mut file)?;
        file.into_inner()?.sync_data()
    };
    let result = written().and_then(|()| fs::rename(&part, path));
    if result.is_err() {
        // It is removed by the next export otherwise.
        let _ = fs::remove_file(&part);
    }
    result.map_err(failed(path))
}
