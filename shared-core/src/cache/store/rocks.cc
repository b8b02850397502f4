// The functions of RocksDB that sszip needs, as plain C. rocks.rs is the other
// side, and repeats these declarations. RocksDB's own C interface lacks the
// flush of several families at once and the listener.
//
// No exception leaves this file. The receiver of a pointer frees it with the
// matching function; a status is written by every function that takes one.

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/metadata.h>
#include <rocksdb/options.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>

#include "rocks_flush.h"
#include "rocks_ready.h"

#ifdef SSZIP_ROCKS_FAULTS
#include "rocks_faults.h"
#endif

using rocksdb::ColumnFamilyHandle;
using rocksdb::PinnableSlice;
using rocksdb::Slice;
using rocksdb::SliceParts;
using rocksdb::Status;

extern "C" {

struct rocks_status {
    uint8_t code; // rocksdb::Status::Code; 255 is an exception
    uint8_t subcode;
    char message[254]; // NUL-terminated, cut if need be
};

struct rocks_bytes {
    const uint8_t *data;
    size_t size;
};

struct rocks_family {
    rocks_bytes name;
    // Maximum bytes of SST files with FIFO; 0: levelled compaction.
    uint64_t fifo_size;
    uint64_t write_buffer;
    uint64_t memtable; // upper bound of a memtable's bytes
    uint64_t joined; // maximum bytes of a file that FIFO compacts
};

struct rocks_options {
    rocks_bytes path;
    const rocks_family *families; // the first is "default"
    size_t family_count;
    uint64_t block_cache;
    uint8_t create;
};

struct rocks_write {
    uint32_t family;
    uint8_t remove; // 0: put
    rocks_bytes key;
    rocks_bytes value[2]; // concatenated
};

struct rocks_file {
    uint64_t size;
    uint64_t smallest_sequence;
    uint64_t largest_sequence;
    uint64_t made; // seconds since 1970; 0: unknown
};

} // extern "C"

namespace {

// Number of SST files that are compacted into one.
constexpr int kJoined = 8;

Slice slice(const rocks_bytes &bytes) {
    return Slice(reinterpret_cast<const char *>(bytes.data), bytes.size);
}

void set(rocks_status *out, const Status &status) {
    out->code = static_cast<uint8_t>(status.code());
    out->subcode = static_cast<uint8_t>(status.subcode());
    out->message[0] = '\0';
    if (!status.ok()) {
        std::string text = status.ToString();
        size_t length = std::min(text.size(), sizeof(out->message) - 1);
        memcpy(out->message, text.data(), length);
        out->message[length] = '\0';
    }
}

void set_thrown(rocks_status *out) {
    out->code = 255;
    out->subcode = 0;
    strcpy(out->message, "out of memory, or another C++ exception");
}

// A logger without output. RocksDB's own log would meet a full disk like all
// files, and Debian builds RocksDB with its assertions: the second line after
// one that could not be written aborts the process in one of them.
class NoLog : public rocksdb::Logger {
public:
    using rocksdb::Logger::Logv;
    void Logv(const char *, va_list) override {}
};

std::string fifo_options(uint64_t size, bool joins) {
    // flushes create small SST files: neighbours are compacted
    return "{max_table_files_size=" + std::to_string(size) +
           ";allow_compaction=" + (joins ? "true" : "false") + ";}";
}

rocksdb::ColumnFamilyOptions family_options(
    const rocks_family &family, const std::shared_ptr<rocksdb::Cache> &cache) {
    rocksdb::ColumnFamilyOptions options;
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = cache;
    table.block_size = 16 << 10; // a quarter of the index in memory
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(20, false));
    table.format_version = 5;
    table.data_block_index_type =
        rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options.compression = rocksdb::kNoCompression; // bodies are deflated
    // at this size RocksDB would flush by itself, see Flushes
    options.write_buffer_size = family.memtable;
    // FIFO has one level, and the other family is small
    options.level0_slowdown_writes_trigger = 1 << 30;
    options.level0_stop_writes_trigger = 1 << 30;
    options.arena_block_size =
        std::min<size_t>(family.write_buffer / 8, 1 << 20);
    if (family.fifo_size > 0) {
        options.compaction_style = rocksdb::kCompactionStyleFIFO;
        options.compaction_options_fifo.max_table_files_size =
            family.fifo_size;
        // sszip_rocks_set_fifo enables it when there is space
        options.compaction_options_fifo.allow_compaction = false;
        options.level0_file_num_compaction_trigger = kJoined;
        // the maximum size of a compacted file; and FIFO compacts no files that
        // are longer than a write buffer each
        options.max_compaction_bytes = family.joined;
        options.write_buffer_size =
            std::max(family.memtable, family.joined / (kJoined - 1));
        options.ttl = 0; // the default is 30 days with FIFO
    }
    return options;
}

} // namespace

extern "C" {

struct rocks_db {
    std::shared_ptr<Background> background;
    std::shared_ptr<rocksdb::Statistics> statistics;
#ifdef SSZIP_ROCKS_FAULTS
    std::shared_ptr<PowerFileSystem> power;
#endif
    std::unique_ptr<rocksdb::Env> env;
    std::unique_ptr<rocksdb::DB> db;
    std::vector<ColumnFamilyHandle *> families;
    std::unique_ptr<Flushes> flushes;

    ~rocks_db() {
        if (db != nullptr) {
            for (ColumnFamilyHandle *family : families) {
                (void) db->DestroyColumnFamilyHandle(family);
            }
        }
    }
};

struct rocks_value {
    PinnableSlice slice;
};

struct rocks_iterator {
    std::string upper;
    Slice bound;
    std::unique_ptr<rocksdb::Iterator> iterator;
};

// Returns NULL on failure.
rocks_db *sszip_rocks_open(const rocks_options *wanted, rocks_status *status) {
    try {
        auto out = std::make_unique<rocks_db>();
        out->background = std::make_shared<Background>();
        out->statistics = rocksdb::CreateDBStatistics();
        out->statistics->set_stats_level(
            rocksdb::StatsLevel::kExceptHistogramOrTimers);

        rocksdb::DBOptions options;
        options.create_if_missing = wanted->create != 0;
        options.create_missing_column_families = wanted->create != 0;
        options.atomic_flush = true;
        options.avoid_flush_during_shutdown = true; // done by sszip_rocks_close
        options.statistics = out->statistics;
        options.listeners.push_back(out->background);
        options.max_open_files = -1;
        // the other files stay small
        options.max_total_wal_size = 4 << 20;
        options.max_manifest_file_size = 4 << 20;
        options.info_log = std::make_shared<NoLog>();
        options.stats_dump_period_sec = 0;
        options.stats_persist_period_sec = 0;
        // A compacted SST file is long: it is read and written in pieces.
        // Compactions have the normal priority: old files are dropped by the
        // same thread, and with a lower one a store that was being filled grew
        // to thrice its size.
        options.compaction_readahead_size = 1 << 20;
        options.bytes_per_sync = 1 << 20;
        auto files = rocksdb::FileSystem::Default();
#ifdef SSZIP_ROCKS_FAULTS
        out->power = PowerFileSystem::wanted(slice(wanted->path).ToString());
        if (out->power != nullptr) {
            files = out->power;
        }
#endif
        out->env = rocksdb::NewCompositeEnv(
            std::make_shared<ReadyFileSystem>(files));
        options.env = out->env.get();

        auto cache = rocksdb::NewLRUCache(wanted->block_cache);
        std::vector<rocksdb::ColumnFamilyDescriptor> families;
        for (size_t i = 0; i < wanted->family_count; i++) {
            const rocks_family &family = wanted->families[i];
            families.emplace_back(slice(family.name).ToString(),
                                  family_options(family, cache));
        }

        rocksdb::DB *db = nullptr;
        Status opened =
            rocksdb::DB::Open(options, slice(wanted->path).ToString(),
                              families, &out->families, &db);
        out->db.reset(db);
        out->flushes = std::make_unique<Flushes>(db, &out->families,
                                                 out->background.get());
        set(status, opened);
        return opened.ok() ? out.release() : nullptr;
    } catch (...) {
        set_thrown(status);
        return nullptr;
    }
}

// Creates RocksDB's static objects: a handler that is registered with atexit
// afterwards runs before they are destroyed.
void sszip_rocks_prepare(void) {
    try {
        (void) rocksdb::Env::Default();
    } catch (...) {
        // opening will report the error
    }
}

// Flushes the memtables, closes the database and frees it.
void sszip_rocks_close(rocks_db *db, rocks_status *status) {
    try {
        Status closed = db->flushes->all();
        for (ColumnFamilyHandle *family : db->families) {
            (void) db->db->DestroyColumnFamilyHandle(family);
        }
        db->families.clear();
        Status ended = db->db->Close();
        set(status, closed.ok() ? ended : closed);
    } catch (...) {
        set_thrown(status);
    }
    try {
        delete db;
    } catch (...) {
        set_thrown(status);
    }
}

// Writes a batch, all of it or nothing. Never waits for a flush, and returns
// kIncomplete instead.
//
// The log is for measurements. A log that has met a full disk aborts the
// process later: after a recovery that had nothing to flush RocksDB 7.8
// continues to write to the same file, which Debian's build takes for a mistake
// in the program (WritableFileWriter::AssertFalseAndGetStatusForPrevError).
void sszip_rocks_write(rocks_db *db, const rocks_write *writes, size_t count,
                       uint8_t wal, rocks_status *status) {
    try {
        rocksdb::WriteBatch batch;
        Status built;
        for (size_t i = 0; i < count && built.ok(); i++) {
            const rocks_write &write = writes[i];
            ColumnFamilyHandle *family = db->families.at(write.family);
            Slice key = slice(write.key);
            if (write.remove != 0) {
                built = batch.Delete(family, key);
                continue;
            }
            Slice value[2] = {slice(write.value[0]), slice(write.value[1])};
            built = batch.Put(family, SliceParts(&key, 1),
                              SliceParts(value, 2));
        }
        if (built.ok()) {
            rocksdb::WriteOptions options;
            options.disableWAL = wal == 0;
            options.no_slowdown = true;
            built = db->db->Write(options, &batch);
        }
        set(status, built);
    } catch (...) {
        set_thrown(status);
    }
}

// Changes the maximum bytes of SST files of a FIFO family, and whether they are
// compacted.
void sszip_rocks_set_fifo(rocks_db *db, uint32_t family, uint64_t size,
                          uint8_t joins, rocks_status *status) {
    try {
        set(status,
            db->db->SetOptions(
                db->families.at(family),
                {{"compaction_options_fifo", fifo_options(size, joins != 0)}}));
    } catch (...) {
        set_thrown(status);
    }
}

// Drops SST files of a FIFO family that were created before `made` (seconds
// since 1970), the oldest first, up to the first one that was not. Returns
// their number.
//
// FIFO's own `ttl` uses the oldest entry of a file, and a compaction of small
// files keeps the oldest time of all: entries would be dropped that were
// written just before. It is also evaluated only when a memtable is flushed.
size_t sszip_rocks_drop_before(rocks_db *db, uint32_t family, uint64_t made,
                               rocks_status *status) {
    size_t dropped = 0;
    try {
        ColumnFamilyHandle *handle = db->families.at(family);
        rocksdb::ColumnFamilyMetaData data;
        db->db->GetColumnFamilyMetaData(handle, &data);
        set(status, Status::OK());
        if (data.levels.empty()) {
            return 0;
        }
        // the newest is first
        const auto &files = data.levels[0].files;
        for (auto file = files.rbegin(); file != files.rend(); ++file) {
            if (file->file_creation_time == 0 ||
                file->file_creation_time >= made) {
                break;
            }
            Status deleted = db->db->DeleteFile(file->name);
            if (deleted.IsInvalidArgument()) {
                break; // it, or the one before it, is being compacted
            }
            set(status, deleted);
            if (!deleted.ok()) {
                break;
            }
            dropped++;
        }
    } catch (...) {
        set_thrown(status);
    }
    return dropped;
}

// Returns the value, pinned in RocksDB's memory; NULL if there is none or on
// failure. With `ready` it never waits, and returns kBusy instead.
rocks_value *sszip_rocks_get(rocks_db *db, uint32_t family,
                             const rocks_bytes *key, uint8_t ready,
                             rocks_bytes *out, rocks_status *status) {
    try {
        auto value = std::make_unique<rocks_value>();
        Ready reads(ready != 0);
        Status got = db->db->Get(rocksdb::ReadOptions(),
                                 db->families.at(family), slice(*key),
                                 &value->slice);
        set(status, got);
        if (!got.ok()) {
            return nullptr;
        }
        out->data = reinterpret_cast<const uint8_t *>(value->slice.data());
        out->size = value->slice.size();
        return value.release();
    } catch (...) {
        set_thrown(status);
        return nullptr;
    }
}

// Returns 0 if the key does not exist, by memtables and Bloom filters. Never
// waits.
uint8_t sszip_rocks_may_have(rocks_db *db, uint32_t family,
                             const rocks_bytes *key) {
    try {
        // without `value_found` the value is not copied
        std::string value;
        return db->db->KeyMayExist(rocksdb::ReadOptions(),
                                   db->families.at(family), slice(*key),
                                   &value);
    } catch (...) {
        return 1;
    }
}

void sszip_rocks_value_free(rocks_value *value) {
    try {
        delete value;
    } catch (...) {
    }
}

// Flushes all families at once, and returns when that is done.
void sszip_rocks_flush(rocks_db *db, rocks_status *status) {
    try {
        set(status, db->flushes->all());
    } catch (...) {
        set_thrown(status);
    }
}

// Begins a flush without waiting. Returns 0 if another one is in progress.
uint8_t sszip_rocks_begin_flush(rocks_db *db, rocks_status *status) {
    bool begun = false;
    try {
        set(status, db->flushes->begin(&begun));
    } catch (...) {
        set_thrown(status);
    }
    return begun;
}

// Makes RocksDB leave the state after a background error.
void sszip_rocks_resume(rocks_db *db, rocks_status *status) {
    try {
        set(status, db->flushes->resume());
    } catch (...) {
        set_thrown(status);
    }
}

// Sets the current background error; kOk without one.
void sszip_rocks_background(rocks_db *db, rocks_status *status) {
    try {
        set(status, db->flushes->error());
    } catch (...) {
        set_thrown(status);
    }
}

// Returns the rows from `from` up to, but not including, `to`. NULL on failure.
rocks_iterator *sszip_rocks_iterate(rocks_db *db, uint32_t family,
                                    const rocks_bytes *from,
                                    const rocks_bytes *to,
                                    rocks_status *status) {
    try {
        auto out = std::make_unique<rocks_iterator>();
        out->upper = slice(*to).ToString();
        out->bound = Slice(out->upper);
        rocksdb::ReadOptions options;
        options.iterate_upper_bound = &out->bound;
        options.fill_cache = false;
        out->iterator.reset(
            db->db->NewIterator(options, db->families.at(family)));
        out->iterator->Seek(slice(*from));
        set(status, out->iterator->status());
        return out.release();
    } catch (...) {
        set_thrown(status);
        return nullptr;
    }
}

// Returns the next row; 0 at the end and on failure. `key` and `value` are
// valid until the next call.
uint8_t sszip_rocks_next(rocks_iterator *iterator, uint8_t first,
                         rocks_bytes *key, rocks_bytes *value,
                         rocks_status *status) {
    try {
        rocksdb::Iterator *rows = iterator->iterator.get();
        if (first == 0 && rows->Valid()) {
            rows->Next();
        }
        set(status, rows->status());
        if (!rows->Valid()) {
            return 0;
        }
        key->data = reinterpret_cast<const uint8_t *>(rows->key().data());
        key->size = rows->key().size();
        value->data = reinterpret_cast<const uint8_t *>(rows->value().data());
        value->size = rows->value().size();
        return 1;
    } catch (...) {
        set_thrown(status);
        return 0;
    }
}

void sszip_rocks_iterator_free(rocks_iterator *iterator) {
    try {
        delete iterator;
    } catch (...) {
    }
}

// Returns the number of SST files of a family; the first `room` of them, newest
// first, are written to `out`.
size_t sszip_rocks_files(rocks_db *db, uint32_t family, rocks_file *out,
                         size_t room) {
    try {
        rocksdb::ColumnFamilyMetaData data;
        db->db->GetColumnFamilyMetaData(db->families.at(family), &data);
        std::vector<rocks_file> files;
        for (const auto &level : data.levels) {
            for (const auto &file : level.files) {
                files.push_back(rocks_file{file.size, file.smallest_seqno,
                                           file.largest_seqno,
                                           file.file_creation_time});
            }
        }
        std::sort(files.begin(), files.end(),
                  [](const rocks_file &a, const rocks_file &b) {
                      return a.largest_sequence > b.largest_sequence;
                  });
        std::copy_n(files.begin(), std::min(room, files.size()), out);
        return files.size();
    } catch (...) {
        return 0;
    }
}

// Returns the sequence number of the newest write.
uint64_t sszip_rocks_sequence(rocks_db *db) {
    return db->db->GetLatestSequenceNumber();
}

// Returns a numeric property of a family; 0 if it is unknown.
uint64_t sszip_rocks_property(rocks_db *db, uint32_t family,
                              const rocks_bytes *name) {
    try {
        uint64_t value = 0;
        bool known = db->db->GetIntProperty(db->families.at(family),
                                            slice(*name), &value);
        return known ? value : 0;
    } catch (...) {
        return 0;
    }
}

// Bytes written since the database was opened: to the WAL, by flushes, by
// compactions.
void sszip_rocks_written(rocks_db *db, uint64_t out[3]) {
    out[0] = db->statistics->getTickerCount(rocksdb::WAL_FILE_BYTES);
    out[1] = db->statistics->getTickerCount(rocksdb::FLUSH_WRITE_BYTES);
    out[2] = db->statistics->getTickerCount(rocksdb::COMPACT_WRITE_BYTES);
}

#ifdef SSZIP_ROCKS_FAULTS
// Writes to the directory `to` what a power cut at this moment would leave of
// the database: with `synced_names` the names that were synced, otherwise all
// names, each with its synced content. Returns 0 on failure.
uint8_t sszip_rocks_power_cut(rocks_db *db, const rocks_bytes *to,
                              uint8_t synced_names) {
    try {
        return db->power != nullptr &&
               db->power->cut(slice(*to).ToString(), synced_names != 0);
    } catch (...) {
        return 0;
    }
}
#endif

} // extern "C"
