// Flushes, one at a time, and what RocksDB's background errors are made of.
//
// RocksDB 7.8 with `atomic_flush` loses a flush that is done while another
// background error comes up: its memtables stay in memory for ever, "being
// flushed", and whoever waits for them waits for ever, RocksDB's own recovery
// and its Close() among them (DBImpl::AtomicFlushMemTablesToOutputFiles undoes
// what failed itself, and not what it then does not install). After an error
// it also takes flushes from its queue that it then does not begin, and after a
// recovery Flush() says that a flush is done that has just begun
// (ErrorHandler::ClearBGError leaves `is_db_stopped_` set). Hence:
//
// - it never flushes by itself, but when it is told, and then only if no other
//   flush is on its way: there is none that an error of another could lose;
// - a join of tables that finds the disk full is no background error;
// - it does not recover by itself, beside what others do, but when it is told;
// - whether a flush is done is seen from the memtables.

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

// The error that keeps RocksDB from writing, as its listener is told.
class Background : public rocksdb::EventListener {
public:
    void OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                           rocksdb::Status *error) override {
        if (reason == rocksdb::BackgroundErrorReason::kCompaction &&
            error->IsNoSpace()) {
            // it is tried again in a second, if tables are joined then
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

// All families at once: one after the other would tear batches apart.
class Flushes {
public:
    // All of these outlive it, or are not used when it is told to do nothing.
    Flushes(rocksdb::DB *db,
            const std::vector<rocksdb::ColumnFamilyHandle *> *families,
            Background *background)
        : db_(db), families_(families), background_(background) {}

    // Begins one, and waits for nothing; `false` while another is on its way.
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

    // When this says so, all is flushed that was in memory when it was called.
    rocksdb::Status all() {
        std::lock_guard<std::mutex> one(mutex_);
        rocksdb::Status status = wait();
        if (status.ok()) {
            status = flush();
        }
        return status.ok() ? wait() : status;
    }

    // Leaves the state that a background error put RocksDB into, by a flush.
    rocksdb::Status resume() {
        std::lock_guard<std::mutex> one(mutex_);
        return stays_lost() ? error() : db_->Resume();
    }

    // What keeps RocksDB from writing.
    rocksdb::Status error() {
        return is_lost_ ? rocksdb::Status::IOError(
                              "RocksDB lost a flush: it takes writes again "
                              "when it is opened anew")
                        : background_->error();
    }

private:
    enum State { kNone, kOnItsWay, kLost };

    static constexpr std::chrono::milliseconds kLook{1};
    // Far longer than anything takes between the steps of a flush.
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

    // Until no memtable waits to be written.
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

    // The steps of a flush are not seen at one moment.
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
    std::mutex mutex_; // held by who flushes
    std::atomic<bool> is_lost_{false};
};
