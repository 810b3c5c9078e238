#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/dataset.hpp>

#include "ingest/arrow/abi.hpp"
#include "ingest/arrow/stream.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {

/// A hand-made Arrow array and its type, possibly invalid.
class ArrowNode {
 public:
  explicit ArrowNode(std::string format, std::string name = "")
      : format_(std::move(format)), name_(std::move(name)) {
    schema_.format = format_.c_str();
    schema_.name = name_.c_str();
    schema_.release = [](ArrowSchema* schema) { schema->release = nullptr; };
    array_.release = [](ArrowArray* array) { array->release = nullptr; };
  }
  ArrowNode(const ArrowNode&) = delete;
  ArrowNode& operator=(const ArrowNode&) = delete;

  template <class T>
  ArrowNode& buffer(const std::vector<T>& values) {
    auto& bytes = buffers_.emplace_back(values.size() * sizeof(T) + 1);
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), values.size() * sizeof(T));
    return pointer(bytes.data());
  }
  ArrowNode& text(const std::string& bytes) {
    return buffer(std::vector<char>(bytes.begin(), bytes.end()));
  }
  /// Adds a buffer; null by default.
  ArrowNode& pointer(const void* buffer = nullptr) {
    pointers_.push_back(buffer);
    array_.buffers = pointers_.data();
    array_.n_buffers = static_cast<std::int64_t>(pointers_.size());
    return *this;
  }
  ArrowNode& rows(std::int64_t length, std::int64_t offset = 0, std::int64_t null_count = 0) {
    array_.length = length;
    array_.offset = offset;
    array_.null_count = null_count;
    return *this;
  }
  ArrowNode& child(ArrowNode& node) {
    schemas_.push_back(&node.schema_);
    arrays_.push_back(&node.array_);
    schema_.children = schemas_.data();
    array_.children = arrays_.data();
    schema_.n_children = array_.n_children = static_cast<std::int64_t>(arrays_.size());
    return *this;
  }
  ArrowNode& dictionary(ArrowNode& node) {
    schema_.dictionary = &node.schema_;
    array_.dictionary = &node.array_;
    return *this;
  }

  ArrowSchema& schema() { return schema_; }
  ArrowArray& array() { return array_; }

 private:
  std::string format_;
  std::string name_;
  std::deque<std::vector<std::byte>> buffers_;
  std::vector<const void*> pointers_;
  std::vector<ArrowSchema*> schemas_;
  std::vector<ArrowArray*> arrays_;
  ArrowSchema schema_{};
  ArrowArray array_{};
};

/// An element of an Arrow string view. A string of up to 12 bytes is stored in the element, from
/// `inlined` on. A longer string is in a buffer, and `inlined` has its first 4 bytes.
struct ArrowView {
  std::int32_t size = 0;
  char inlined[4] = {};
  std::int32_t buffer = 0;
  std::int32_t offset = 0;

  static ArrowView of(const std::string& text) {
    ArrowView made;
    made.size = static_cast<std::int32_t>(text.size());
    std::memcpy(reinterpret_cast<char*>(&made) + 4, text.data(), text.size());
    return made;
  }
};

/// A stream that returns one batch `times` times.
class ArrowStreamOf {
 public:
  explicit ArrowStreamOf(ArrowNode& batch, int times = 1) : batch_(batch), left_(times) {
    stream_.private_data = this;
    stream_.get_schema = [](ArrowArrayStream* stream, ArrowSchema* out) {
      *out = self(stream).batch_.schema();
      return 0;
    };
    stream_.get_next = [](ArrowArrayStream* stream, ArrowArray* out) {
      ArrowStreamOf& made = self(stream);
      *out = ArrowArray{};
      if (made.error_ != 0) return made.error_;
      if (made.left_-- > 0) *out = made.batch_.array();
      return 0;
    };
    stream_.get_last_error = [](ArrowArrayStream*) { return "the producer's own words"; };
    stream_.release = [](ArrowArrayStream* stream) {
      self(stream).released_ = true;
      stream->release = nullptr;
    };
  }
  void fail(int error) { error_ = error; }
  bool released() const { return released_; }
  ArrowArrayStream& stream() { return stream_; }

 private:
  static ArrowStreamOf& self(ArrowArrayStream* stream) {
    return *static_cast<ArrowStreamOf*>(stream->private_data);
  }
  ArrowNode& batch_;
  int left_;
  int error_ = 0;
  bool released_ = false;
  ArrowArrayStream stream_{};
};

/// A batch of `num_rows` rows whose only column is `column`.
class ArrowBatchOf {
 public:
  ArrowBatchOf(ArrowNode& column, std::int64_t num_rows) {
    root_.pointer().rows(num_rows).child(column);
  }
  ArrowNode& root() { return root_; }

 private:
  ArrowNode root_{"+s"};
};

/// Ingests Arrow data into a data set in a temporary folder.
class IngestedArrow {
 public:
  /// Ingests a batch whose only column is `column`.
  Dataset rows(ArrowNode& column, std::int64_t num_rows, const ArrowIngestOptions& options = {}) {
    ArrowBatchOf batch(column, num_rows);
    return rows(batch.root(), options);
  }
  Dataset rows(ArrowNode& root, const ArrowIngestOptions& options = {}) {
    ArrowStreamOf stream(root);
    return rows(stream.stream(), options);
  }
  Dataset rows(ArrowArrayStream& stream, const ArrowIngestOptions& options = {}) {
    report = ingest_arrow(stream, target(), options);
    return Dataset(target());
  }
  Path target() const { return folder_ / "rows"; }
  std::string bad_rows() const { return read_bytes(target() / "bad_rows.jsonl"); }

  SourceReport report;

 private:
  TemporaryFolder folder_;
};

}  // namespace tenfold::test
