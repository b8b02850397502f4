// Flushes, one at a time, and RocksDB's background errors.
//
// RocksDB 7.8 with `atomic_flush` loses a flush that is done while another
// background error occurs: its memtables stay in memory forever, "being
// flushed", and every waiter for them waits forever, including RocksDB's own
// recovery and its Close() (DBImpl::AtomicFlushMemTablesToOutputFiles undoes
// its own failures, and not a flush that it then does not install). After an
// error it also takes flushes from its queue without beginning them, and after
// a recovery Flush() reports a flush as done that has just begun
// (ErrorHandler::ClearBGError leaves `is_db_stopped_` set). Hence:
//
// - RocksDB never flushes by itself, but only on request, and only if no other
//   flush is in progress: an error of another one can't lose it;
// - a compaction that finds the disk full is no background error;
// - RocksDB does not recover by itself, at the same time as other calls, but
//   only on request;
// - the state of the memtables shows whether a flush is done.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>

// The error that keeps RocksDB from writing, as its listener receives it.
class Background : public rocksdb::EventListener {
public:
    void OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                           rocksdb::Status *error) override {
        if (reason == rocksdb::BackgroundErrorReason::kCompaction &&
            error->IsNoSpace()) {
            // retried in a second, if SST files are compacted then
            *error = rocksdb::Status::OK();
            return;
        }
        std::lock_guard<std::mutex> lock(mutex_);
        error_ = *error;
    }

    void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason,
                              rocksdb::Status,
                              bool *recovers_by_itself) override {
        *recovers_by_itself = false;
    }

    void OnErrorRecoveryEnd(
        const rocksdb::BackgroundErrorRecoveryInfo &info) override {
        std::lock_guard<std::mutex> lock(mutex_);
        error_ = info.new_bg_error;
    }

    rocksdb::Status error() {
        std::lock_guard<std::mutex> lock(mutex_);
        return error_;
    }

private:
    std::mutex mutex_;
    rocksdb::Status error_;
};

// Flushes of all families at once: flushes of single families would split
// batches.
class Flushes {
public:
    // The arguments outlive it, or are not used if it is never called.
    Flushes(rocksdb::DB *db,
            const std::vector<rocksdb::ColumnFamilyHandle *> *families,
            Background *background)
        : db_(db), families_(families), background_(background) {}

    // Begins a flush without waiting; `begun` is false if another one is in
    // progress.
    rocksdb::Status begin(bool *begun) {
        *begun = false;
        std::unique_lock<std::mutex> one(mutex_, std::try_to_lock);
        if (!one.owns_lock() || state() != kNone) {
            return error();
        }
        rocksdb::Status status = flush();
        *begun = status.ok();
        return status;
    }

    // Returns when all that was in memory at the time of the call is flushed.
    rocksdb::Status all() {
        std::lock_guard<std::mutex> one(mutex_);
        rocksdb::Status status = wait();
        if (status.ok()) {
            status = flush();
        }
        return status.ok() ? wait() : status;
    }

    // Leaves the state after a background error, with a flush.
    rocksdb::Status resume() {
        std::lock_guard<std::mutex> one(mutex_);
        return stays_lost() ? error() : db_->Resume();
    }

    // Returns the error that keeps RocksDB from writing.
    rocksdb::Status error() {
        return is_lost_ ? rocksdb::Status::IOError(
                              "RocksDB lost a flush: writes resume when "
                              "it is opened again")
                        : background_->error();
    }

private:
    enum State { kNone, kOnItsWay, kLost };

    static constexpr std::chrono::milliseconds kLook{1};
    // far longer than the time between the steps of a flush
    static constexpr int kLooks = 3000;

    rocksdb::Status flush() {
        rocksdb::Status status = error();
        if (!status.ok()) {
            return status;
        }
        rocksdb::FlushOptions options;
        options.wait = false;
        options.allow_write_stall = true;
        return db_->Flush(options, *families_);
    }

    // Waits until no memtable has to be written.
    rocksdb::Status wait() {
        while (true) {
            rocksdb::Status status = error();
            if (!status.ok() || state() == kNone) {
                return status;
            }
            if (!stays_lost()) {
                std::this_thread::sleep_for(kLook);
            }
        }
    }

    // Whether a flush is lost for good. The steps of a flush are not visible
    // atomically, so that it is observed for a while.
    bool stays_lost() {
        for (int looks = 0; state() == kLost; looks++) {
            if (looks == kLooks) {
                is_lost_ = true;
                return true;
            }
            std::this_thread::sleep_for(kLook);
        }
        return false;
    }

    uint64_t sum(const std::string &property) const {
        uint64_t sum = 0;
        for (rocksdb::ColumnFamilyHandle *family : *families_) {
            uint64_t value = 0;
            (void) db_->GetIntProperty(family, property, &value);
            sum += value;
        }
        return sum;
    }

    State state() const {
        using Properties = rocksdb::DB::Properties;
        if (sum(Properties::kNumImmutableMemTable) == 0) {
            return kNone;
        }
        bool is_on_its_way = sum(Properties::kMemTableFlushPending) > 0 ||
                             sum(Properties::kNumRunningFlushes) > 0;
        return is_on_its_way ? kOnItsWay : kLost;
    }

    rocksdb::DB *db_;
    const std::vector<rocksdb::ColumnFamilyHandle *> *families_;
    Background *background_;
    std::mutex mutex_; // locked during a flush
    std::atomic<bool> is_lost_{false};
};
