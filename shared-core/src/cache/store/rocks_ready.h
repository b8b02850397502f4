// Reads that don't wait for a disk.
//
// A thread that enables them receives what is in the page cache, and kBusy for
// the rest, so that the caller can choose which thread waits. RocksDB has no
// such read: its own, `kBlockCacheTier`, knows its block cache only.

#pragma once

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rocksdb/file_system.h>

// While it exists, reads of its thread don't wait, if that is wanted.
class Ready {
public:
    explicit Ready(bool is_wanted) { wanted() = is_wanted; }
    ~Ready() { wanted() = false; }
    Ready(const Ready &) = delete;
    Ready &operator=(const Ready &) = delete;

    static bool &wanted() {
        static thread_local bool is_wanted = false;
        return is_wanted;
    }
};

class ReadyFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
public:
    // copying more takes as long as a fast disk
    static constexpr size_t kLongest = 256 << 10;

    // `descriptor` is another descriptor of `file`; the object closes it.
    ReadyFile(std::unique_ptr<rocksdb::FSRandomAccessFile> &&file,
              int descriptor)
        : FSRandomAccessFileOwnerWrapper(std::move(file)),
          descriptor_(descriptor) {}

    ~ReadyFile() override { close(descriptor_); }

    rocksdb::IOStatus Read(uint64_t offset, size_t size,
                           const rocksdb::IOOptions &options,
                           rocksdb::Slice *result, char *scratch,
                           rocksdb::IODebugContext *debug) const override {
        if (!Ready::wanted()) {
            return target()->Read(offset, size, options, result, scratch,
                                  debug);
        }
        if (size > kLongest) {
            return rocksdb::IOStatus::Busy();
        }
        size_t done = 0;
        while (done < size) {
            struct iovec rest = {scratch + done, size - done};
            ssize_t got =
                preadv2(descriptor_, &rest, 1,
                        static_cast<off_t>(offset + done), RWF_NOWAIT);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                // a file system without support reports it here as well
                return rocksdb::IOStatus::Busy();
            }
            done += static_cast<size_t>(got);
        }
        *result = rocksdb::Slice(scratch, done);
        return rocksdb::IOStatus::OK();
    }

private:
    int descriptor_;
};

class ReadyFileSystem : public rocksdb::FileSystemWrapper {
public:
    using FileSystemWrapper::FileSystemWrapper;

    const char *Name() const override { return "sszip.ReadyFileSystem"; }

    rocksdb::IOStatus NewRandomAccessFile(
        const std::string &name, const rocksdb::FileOptions &options,
        std::unique_ptr<rocksdb::FSRandomAccessFile> *result,
        rocksdb::IODebugContext *debug) override {
        rocksdb::IOStatus status =
            target()->NewRandomAccessFile(name, options, result, debug);
        if (!status.ok() || options.use_direct_reads) {
            return status;
        }
        int descriptor = open(name.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor >= 0) {
            *result = std::make_unique<ReadyFile>(std::move(*result),
                                                  descriptor);
        }
        return status;
    }
};
