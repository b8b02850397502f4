// A file system that records what a power cut would leave, for tests.
//
// Every new file is linked into a second directory, so that its content
// outlives its name. The file system records how much of it was synced and,
// with each fsync of the directory, the names at that time. A power cut at any
// moment is then a copy: of each name that the directory had when it was last
// synced, the synced part of the file.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

class PowerFileSystem : public rocksdb::FileSystemWrapper {
public:
    // Returns a file system if the environment has SSZIP_POWER_CUTS. The copies
    // of the files of `database` are in `database` + ".shadow".
    static std::shared_ptr<PowerFileSystem> wanted(
        const std::string &database) {
        if (getenv("SSZIP_POWER_CUTS") == nullptr) {
            return nullptr;
        }
        return std::make_shared<PowerFileSystem>(database);
    }

    explicit PowerFileSystem(const std::string &database)
        : FileSystemWrapper(rocksdb::FileSystem::Default()),
          database_(database), shadow_(database + ".shadow") {
        std::filesystem::remove_all(shadow_);
        std::filesystem::create_directories(shadow_);
        if (!std::filesystem::exists(database_)) {
            return;
        }
        // existing files were synced long ago
        for (const auto &entry :
             std::filesystem::directory_iterator(database_)) {
            uint64_t file = track(entry.path().string());
            state_.synced[file] = entry.file_size();
        }
        state_.durable = state_.names;
    }

    const char *Name() const override { return "sszip.PowerFileSystem"; }

    rocksdb::IOStatus NewWritableFile(
        const std::string &name, const rocksdb::FileOptions &options,
        std::unique_ptr<rocksdb::FSWritableFile> *result,
        rocksdb::IODebugContext *debug) override {
        rocksdb::IOStatus status =
            target()->NewWritableFile(name, options, result, debug);
        if (status.ok()) {
            uint64_t file = track(name);
            *result = std::make_unique<File>(this, file, std::move(*result));
        }
        return status;
    }

    rocksdb::IOStatus RenameFile(const std::string &from,
                                 const std::string &to,
                                 const rocksdb::IOOptions &options,
                                 rocksdb::IODebugContext *debug) override {
        rocksdb::IOStatus status =
            target()->RenameFile(from, to, options, debug);
        std::lock_guard<std::mutex> lock(mutex_);
        auto entry = state_.names.find(base(from));
        if (status.ok() && entry != state_.names.end()) {
            state_.names[base(to)] = entry->second;
            state_.names.erase(entry);
        }
        return status;
    }

    rocksdb::IOStatus DeleteFile(const std::string &name,
                                 const rocksdb::IOOptions &options,
                                 rocksdb::IODebugContext *debug) override {
        rocksdb::IOStatus status = target()->DeleteFile(name, options, debug);
        if (status.ok()) {
            std::lock_guard<std::mutex> lock(mutex_);
            state_.names.erase(base(name));
        }
        return status;
    }

    rocksdb::IOStatus NewDirectory(
        const std::string &name, const rocksdb::IOOptions &options,
        std::unique_ptr<rocksdb::FSDirectory> *result,
        rocksdb::IODebugContext *debug) override {
        rocksdb::IOStatus status =
            target()->NewDirectory(name, options, result, debug);
        if (status.ok()) {
            *result = std::make_unique<Folder>(this, std::move(*result));
        }
        return status;
    }

    // With `synced_names` the copy has the names at the last sync of the
    // directory; without, all present names. Each has the synced part of its
    // content.
    bool cut(const std::string &to, bool synced_names) {
        std::lock_guard<std::mutex> lock(mutex_);
        std::filesystem::create_directories(to);
        const auto &names = synced_names ? state_.durable : state_.names;
        for (const auto &[name, file] : names) {
            std::string content(state_.synced[file], '\0');
            std::ifstream in(shadow(file), std::ios::binary);
            in.read(content.data(),
                    static_cast<std::streamsize>(content.size()));
            std::ofstream out(to + "/" + name, std::ios::binary);
            out.write(content.data(), in.gcount());
            if (!out.good()) {
                return false;
            }
        }
        return true;
    }

private:
    struct State {
        std::map<std::string, uint64_t> names;
        std::map<std::string, uint64_t> durable;
        std::map<uint64_t, uint64_t> synced;
    };

    class File : public rocksdb::FSWritableFileOwnerWrapper {
    public:
        File(PowerFileSystem *system, uint64_t file,
             std::unique_ptr<rocksdb::FSWritableFile> &&target)
            : FSWritableFileOwnerWrapper(std::move(target)), system_(system),
              file_(file) {}

        rocksdb::IOStatus Sync(const rocksdb::IOOptions &options,
                               rocksdb::IODebugContext *debug) override {
            // bytes that are appended meanwhile may not be synced
            uint64_t length = target()->GetFileSize(options, debug);
            return note(target()->Sync(options, debug), length);
        }

        rocksdb::IOStatus Fsync(const rocksdb::IOOptions &options,
                                rocksdb::IODebugContext *debug) override {
            uint64_t length = target()->GetFileSize(options, debug);
            return note(target()->Fsync(options, debug), length);
        }

    private:
        rocksdb::IOStatus note(rocksdb::IOStatus status, uint64_t length) {
            if (status.ok()) {
                system_->synced(file_, length);
            }
            return status;
        }

        PowerFileSystem *system_;
        uint64_t file_;
    };

    class Folder : public rocksdb::FSDirectoryWrapper {
    public:
        Folder(PowerFileSystem *system,
               std::unique_ptr<rocksdb::FSDirectory> &&target)
            : FSDirectoryWrapper(std::move(target)), system_(system) {}

        rocksdb::IOStatus Fsync(const rocksdb::IOOptions &options,
                                rocksdb::IODebugContext *debug) override {
            return note(FSDirectoryWrapper::Fsync(options, debug));
        }

        rocksdb::IOStatus FsyncWithDirOptions(
            const rocksdb::IOOptions &options, rocksdb::IODebugContext *debug,
            const rocksdb::DirFsyncOptions &how) override {
            return note(
                FSDirectoryWrapper::FsyncWithDirOptions(options, debug, how));
        }

    private:
        rocksdb::IOStatus note(rocksdb::IOStatus status) {
            if (status.ok()) {
                std::lock_guard<std::mutex> lock(system_->mutex_);
                system_->state_.durable = system_->state_.names;
            }
            return status;
        }

        PowerFileSystem *system_;
    };

    static std::string base(const std::string &name) {
        return std::filesystem::path(name).filename().string();
    }

    std::string shadow(uint64_t file) const {
        return shadow_ + "/" + std::to_string(file);
    }

    uint64_t track(const std::string &name) {
        std::lock_guard<std::mutex> lock(mutex_);
        uint64_t file = next_++;
        std::error_code ignored; // without a link the file counts as empty
        std::filesystem::create_hard_link(name, shadow(file), ignored);
        state_.names[base(name)] = file;
        state_.synced[file] = 0;
        return file;
    }

    void synced(uint64_t file, uint64_t length) {
        std::lock_guard<std::mutex> lock(mutex_);
        state_.synced[file] = length;
    }

    std::string database_;
    std::string shadow_;
    std::mutex mutex_;
    State state_;
    uint64_t next_ = 0;
};
