//! A VFS for SQLite that behaves like the default one and records each write and each sync.
//!
//! In the memory that SQLite reserves for a file, the default VFS's structure follows ours.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use rusqlite::ffi;
use snakepit::mailbox::sqlite::LogSync;

use super::write_log::{FileChange, WriteLog};

/// The name of the VFS in SQLite.
pub const VFS_NAME: &str = "recorder";

/// The directory in which syncs fail.
static FAULTY: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Makes every sync of a file in this directory fail. With `None`, all syncs succeed again.
pub fn fail_syncs(dir: Option<&Path>) {
    *FAULTY.lock().expect("the lock is not poisoned") = dir.map(Path::to_owned);
}

fn is_faulty(path: &Path) -> bool {
    FAULTY.lock().expect("the lock is not poisoned").as_ref().is_some_and(|dir| path.starts_with(dir))
}

/// The log's sync outside of SQLite, which is recorded in the same way.
#[derive(Clone, Copy, Debug)]
pub struct RecordedSync;

impl LogSync for RecordedSync {
    fn sync(&self, _: &File, path: &Path) -> io::Result<()> {
        if is_faulty(path) {
            return Err(io::Error::other("the disk fails"));
        }
        WriteLog::note(path, FileChange::Sync);
        Ok(())
    }
}

/// The default VFS.
struct DefaultVfs(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite's VFSs are registered forever and may be used by all threads.
unsafe impl Send for DefaultVfs {}
// SAFETY: as above.
unsafe impl Sync for DefaultVfs {}

static DEFAULT_VFS: OnceLock<DefaultVfs> = OnceLock::new();

/// A file, as SQLite stores it.
#[repr(C)]
struct RecordedFile {
    base: ffi::sqlite3_file,
    /// Null for a temporary file, which is not needed after a cut.
    path: *mut PathBuf,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // The version before memory maps, in which all writes come through here.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Registers the VFS with SQLite as [`VFS_NAME`].
pub fn install() {
    DEFAULT_VFS.get_or_init(|| {
        // SAFETY: finds the default VFS, which is never unregistered. Ours is a copy of it that lives forever, with
        // another name, another size of files and other functions to open and delete them. The remaining functions work
        // with either VFS as their argument.
        unsafe {
            let default_vfs = ffi::sqlite3_vfs_find(std::ptr::null());
            assert!(!default_vfs.is_null(), "SQLite has a default layer");
            let mut own = Box::new(*default_vfs);
            own.zName = c"recorder".as_ptr();
            own.pNext = std::ptr::null_mut();
            own.szOsFile = size_of::<RecordedFile>() as c_int + (*default_vfs).szOsFile;
            own.xOpen = Some(open);
            own.xDelete = Some(delete);
            assert_eq!(ffi::sqlite3_vfs_register(Box::into_raw(own), 0), ffi::SQLITE_OK);
            DefaultVfs(default_vfs)
        }
    });
}

fn default_vfs() -> *mut ffi::sqlite3_vfs {
    DEFAULT_VFS.get().expect("the layer is installed").0
}

/// SAFETY: `name` is null or ends with a NUL.
unsafe fn path_of(name: *const c_char) -> Option<PathBuf> {
    // SAFETY: guaranteed by the caller.
    (!name.is_null())
        .then(|| Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())).to_owned())
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let recorded = file.cast::<RecordedFile>();
    // SAFETY: SQLite passes memory of the requested size: our structure, followed by that of the default VFS.
    unsafe {
        (*recorded).base.pMethods = std::ptr::null();
        (*recorded).path = path_of(name).map_or(std::ptr::null_mut(), |path| Box::into_raw(Box::new(path)));
        let open = (*default_vfs()).xOpen.expect("a way to open");
        let result = open(default_vfs(), name, inner(file), flags, out);
        if result == ffi::SQLITE_OK {
            (*recorded).base.pMethods = &raw const METHODS;
        } else if !(*recorded).path.is_null() {
            drop(Box::from_raw((*recorded).path));
        }
        result
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: passes on SQLite's own arguments.
    unsafe {
        let delete = (*default_vfs()).xDelete.expect("a way to delete");
        let result = delete(default_vfs(), name, sync_dir);
        if let (ffi::SQLITE_OK, Some(path)) = (result, path_of(name)) {
            WriteLog::note(&path, FileChange::Delete { is_synced: sync_dir != 0 });
        }
        result
    }
}

/// Returns the default VFS's structure behind ours.
fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: the memory is larger than our structure by the size that the default VFS requested.
    unsafe { file.cast::<RecordedFile>().add(1).cast() }
}

/// Records a change to a file that has a name.
///
/// SAFETY: `file` was opened by this VFS and is not closed yet.
unsafe fn note(file: *mut ffi::sqlite3_file, change: impl FnOnce() -> FileChange) {
    // SAFETY: guaranteed by the caller.
    if let Some(path) = unsafe { (*file.cast::<RecordedFile>()).path.as_ref() } {
        WriteLog::note(path, change());
    }
}

/// Calls the method of the default VFS with its own structure of the file.
macro_rules! ordinarily {
    ($method:ident($file:expr $(, $argument:expr)*)) => {{
        let inner = inner($file);
        // SAFETY: an open file has methods, and these are SQLite's own arguments.
        unsafe { (*(*inner).pMethods).$method.expect("the method")(inner $(, $argument)*) }
    }};
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let result = ordinarily!(xClose(file));
    // SAFETY: created by `open` and not used again.
    unsafe {
        let path = (*file.cast::<RecordedFile>()).path;
        if !path.is_null() {
            drop(Box::from_raw(path));
        }
    }
    result
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, bytes: c_int, at: i64) -> c_int {
    ordinarily!(xRead(file, to, bytes, at))
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    bytes: c_int,
    at: i64,
) -> c_int {
    let result = ordinarily!(xWrite(file, from, bytes, at));
    // SAFETY: SQLite passes this many bytes, and the file is open.
    unsafe {
        let written = std::slice::from_raw_parts(from.cast::<u8>(), bytes as usize);
        note(file, || FileChange::Write(at as u64, written.to_vec()));
    }
    result
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    let result = ordinarily!(xTruncate(file, size));
    // SAFETY: the file is open.
    unsafe { note(file, || FileChange::Truncate(size as u64)) };
    result
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // The cut does not need the disk's own sync, which would only take time.
    let _ = flags;
    // SAFETY: the file is open.
    let path = unsafe { (*file.cast::<RecordedFile>()).path.as_ref() };
    if path.is_some_and(|path| is_faulty(path)) {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    // SAFETY: the file is open.
    unsafe { note(file, || FileChange::Sync) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    ordinarily!(xFileSize(file, size))
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    ordinarily!(xLock(file, level))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    ordinarily!(xUnlock(file, level))
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    ordinarily!(xCheckReservedLock(file, out))
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    ordinarily!(xFileControl(file, what, argument))
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    ordinarily!(xSectorSize(file))
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    ordinarily!(xDeviceCharacteristics(file))
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    ordinarily!(xShmMap(file, page, size, extend, out))
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, at: c_int, locks: c_int, flags: c_int) -> c_int {
    ordinarily!(xShmLock(file, at, locks, flags))
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    ordinarily!(xShmBarrier(file));
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    ordinarily!(xShmUnmap(file, delete))
}
