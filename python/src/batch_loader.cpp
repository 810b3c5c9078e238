#include <tenfold/batch_loader.hpp>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "arguments.hpp"
#include "batch_out.hpp"
#include "call.hpp"
#include "gil.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

class Loader {
 public:
  Loader(const DatasetHandle& dataset, BatchLoaderOptions options, AnyObject ragged)
      : loader_(dataset.dataset, std::move(options)),
        maker_(dataset.dataset.schema(), std::move(ragged)) {}

  BatchLoader& loader() noexcept { return loader_; }
  BatchMaker& maker() noexcept { return maker_; }

 private:
  BatchLoader loader_;
  BatchMaker maker_;
};

/// The iterator of one epoch. Threads may share it.
class Stream {
 public:
  explicit Stream(nb::object self) : self_(std::move(self)), loader_(nb::inst_ptr<Loader>(self_)) {
    batches_ = without_gil([&] { return loader_->loader().start(); });
  }
  Stream(Stream&&) noexcept = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (!batches_) return;
    // The destructor joins threads that may need the GIL to release a Python object.
    const GilRelease released;
    batches_.reset();
  }

  AnyObject next() {
    const auto batch = without_gil([&] { return loader_->loader().next(*batches_); });
    if (!batch) throw nb::stop_iteration();
    num_rows_ = batch->num_rows();
    return loader_->maker().batch(*batch);
  }

  /// The number of rows of the batch that next() returned last, to any thread.
  std::int64_t num_rows() const noexcept { return num_rows_; }

 private:
  nb::object self_;  ///< keeps the loader alive
  Loader* loader_;
  std::shared_ptr<BatchStream> batches_;
  std::int64_t num_rows_ = 0;
};

BatchLoaderOptions options_from(nb::dict values) {
  BatchLoaderOptions options;
  const auto get = [&](const char* key, auto& into) {
    into = nb::cast<std::remove_reference_t<decltype(into)>>(values[key]);
  };
  get("batch_size", options.batch_size);
  get("shuffle", options.shuffle);
  get("seed", options.seed);
  get("drop_last", options.drop_last);
  get("rank", options.rank);
  get("world_size", options.world_size);
  get("prefetch", options.prefetch);
  get("num_threads", options.num_threads);
  get("shuffle_block", options.shuffle_block);
  get("use_supplied_memory", options.use_supplied_memory);
  options.batch = batch_options_from(values["pad"]);
  return options;
}

nb::dict stats_of(Loader& self) {
  const LoaderStats stats = self.loader().stats();
  nb::dict made;
  made["batches"] = stats.batches;
  made["rows"] = stats.rows;
  made["bytes_read"] = stats.bytes;
  made["elapsed_seconds"] = stats.elapsed_seconds;
  made["wait_seconds"] = stats.wait_seconds;
  made["residency"] = text(stats.residency);
  made["shuffle_quality"] = stats.shuffle_window_rows;
  return made;
}

}  // namespace

void bind_batch_loader(nb::module_& module) {
  nb::class_<Stream>(module, "BatchStream")
      .def("__iter__", [](nb::handle self) -> AnyObject { return nb::borrow(self); })
      .def("__next__", &Stream::next)
      .def("num_rows", &Stream::num_rows);
  nb::class_<Loader>(module, "BatchLoader")
      .def("__init__",
           [](Loader* self, const DatasetHandle& dataset, nb::dict options, AnyObject ragged) {
             new (self) Loader(dataset, options_from(options), std::move(ragged));
           })
      .def("__len__", [](Loader& self) { return self.loader().size(); })
      .def("start", [](nb::object self) { return Stream(std::move(self)); })
      .def("epoch", [](Loader& self) { return self.loader().epoch(); })
      .def("set_epoch", [](Loader& self, std::int64_t epoch) { self.loader().set_epoch(epoch); })
      .def("state", [](Loader& self) { return text(self.loader().state_dict()); })
      .def("load_state",
           [](Loader& self, const std::string& json) { self.loader().load_state_dict(json); })
      .def(
          "supply",
          [](Loader& self, std::uintptr_t address, std::size_t size_bytes, AnyObject owner) {
            auto* begin = reinterpret_cast<std::byte*>(address);
            self.loader().supply(
                Buffer(std::span(begin, size_bytes), keep_alive(std::move(owner))));
          },
          "address"_a, "size_bytes"_a, "owner"_a)
      .def("requested_sizes", [](Loader& self) { return self.loader().requested_sizes(); })
      .def("stats", stats_of);
}

}  // namespace tenfold::python
