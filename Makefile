# A small front for CMake; docs/how-to/build.md tells what it does. Plain `make` and `make install` change nothing but
# their own files: where a package is missing they say how to get it. Every other target is a procedure for a machine that is there
# for it, and on Debian 12 first installs what it needs: on a bare one with git and make, `make run` is enough.

BUILD := build
PREFIX ?= /usr/local
SEEDS ?= 1000
SECONDS ?= 600
JOBS := $(shell nproc 2>/dev/null || echo 2)

NEEDED_PACKAGES := gcc libc6-dev cmake ninja-build libssl-dev
OPTIONAL_PACKAGES := zlib1g-dev libpng-dev libdnnl-dev libfabric-dev liblapacke-dev
BUILD_PACKAGES := $(NEEDED_PACKAGES) $(OPTIONAL_PACKAGES)
RUN_PACKAGES := dataset-fashion-mnist
PYTHON_PACKAGES := g++ python3-torch python3-torchvision libopenblas0-pthread dataset-fashion-mnist iproute2
TEST_PACKAGES := g++ clang clang-format-14 libclang-rt-14-dev pkg-config python3 iproute2 procps bsdutils man-db groff-base
CLUSTER_PACKAGES := openmpi-bin libopenmpi-dev mpich libmpich-dev libzmq3-dev slurm-wlm munge python3-torch
DEB_PACKAGES := dpkg-dev file
WHEEL_PACKAGES := binutils python3-setuptools python3-wheel python3-venv

CMAKE = cmake -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_OPTIONS)

.NOTPARALLEL: # packages come before the build, which has its own jobs

# The library, the program and the tests in $(BUILD). Installs no packages: says what is missing.
.PHONY: all
all: needed-packages built

# Everything that `all` makes, where the packages are there. A target of its own, so that others can install them first.
.PHONY: built
built:
	@$(CMAKE) -S . -B $(BUILD) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

# A convolutional network learns Fashion-MNIST with four workers on this machine; the page shows where the time went.
# Installs packages: it is the first thing that somebody tries.
.PHONY: run
run: build-packages run-packages built
	@$(BUILD)/gradwire train -n 4 --capture $(BUILD)/run.gwt
	@$(BUILD)/gradwire trace report $(BUILD)/run.gwt -o $(BUILD)/run.html

# Everything that fits in ten minutes on two cores. Installs packages; a warning is an error in all its builds.
.PHONY: test
test: CMAKE_OPTIONS := -DGW_WERROR=ON
test: test-packages built
	@tests/run quick $(BUILD)

# The whole product of architectures, transports, types, operations, sizes and worlds; hours. Installs packages.
.PHONY: test-full
test-full: test-packages built wheel
	@tests/run full $(BUILD)

# In virtual time: every schedule over 500 seeds, and over 2,860 seeds (20,000 in all) in which a rank is killed, cut off or
# aborts; parameter servers, whose processes are killed, under every synchronization over 1,000 seeds; what residuals keep,
# for every codec, form, architecture and layout of hosts; every triple of arch, compress and schedule; a reducer on 512
# ranks. Then 500 kills and aborts in training steps of real processes. Half an hour.
.PHONY: test-step
test-step: build-packages built
	@TEST_SECONDS=1800 STEP_SEEDS=500 STEP_FAULT_SEEDS=2860 $(BUILD)/tests/test_reducer_sim
	@SERVING_SEEDS=1000 $(BUILD)/tests/test_ps_sim
	@CONSERVATION=all $(BUILD)/tests/test_conservation
	@TEST_SECONDS=1800 ROUTES=all $(BUILD)/tests/test_routes
	@TEST_SECONDS=1800 LARGE_JOB=512 $(BUILD)/tests/test_large_job
	@TEST_SECONDS=1800 STEP_KILLS=500 $(BUILD)/tests/test_reducer_faults

# Codecs on a tensor of 2^31 + 1 elements: half a minute and 3 GiB.
.PHONY: test-huge
test-huge: build-packages built
	@$(BUILD)/tests/helper_codec_huge

# All tests under ASan+UBSan and under TSan.
.PHONY: test-sanitize
test-sanitize: test-packages build-packages
	@tests/run sanitize

# make fuzz SECONDS=3600: each fuzzer for that long.
.PHONY: fuzz
fuzz: test-packages build-packages
	@tests/run fuzz $(SECONDS)

# What `gradwire bench --against` compares with: Debian's Open MPI, MPICH and Gloo.
.PHONY: bench-peers
bench-peers: build-packages built
	@bench/peers/install.sh
	@bench/peers/build.sh $(BUILD)

# Training steps of PyTorch models on 2 and 4 hosts of a lab, with gradwire beside DistributedDataParallel over Gloo, its
# hooks, and Horovod where it is installed, bench/results/pytorch.md: an hour and a half, it goes on where it was stopped;
# needs root.
# ARGUMENTS='--models gpt --hosts 2 --rates 1gbit --turns 3' chooses.
.PHONY: bench-train-peers
bench-train-peers: build-packages python-packages built
	@bench/train_peers.py $(BUILD) --json $(BUILD)/train_peers.json --svg $(BUILD)/train_peers.svg $(ARGUMENTS)

# The same for a VGG-11 whose dense layers travel as factors, bench/results/pytorch.md.
.PHONY: bench-sfb
bench-sfb: build-packages python-packages built
	@bench/train_peers.py $(BUILD) --only --models vgg11 --batch 16 --hosts 2 --rates 1gbit --way alone --way ddp \
	    --way schedule=dear --way 'arch=sfb schedule=wfbp' --way 'arch=sfb schedule=dear' $(ARGUMENTS)

# A training step of gradwire train beside PyTorch's, in one process on one thread, bench/results/training.md.
.PHONY: bench-train-step
bench-train-step: build-packages python-packages built
	@python=$$(scripts/torch) || { echo "$$python"; exit 1; }; "$$python" bench/peers/torch_step.py $(BUILD)

# Has anything become slower than what bench/results/guard.csv has for this model of CPU? A minute or two; exits with 1 if
# so. ARGUMENTS=--record records.
.PHONY: bench-guard
bench-guard: build-packages built
	@bench/guard.py $(BUILD) $(ARGUMENTS)

# The measurements of bench/results that take less than ten minutes each, twenty minutes in all: figures in $(BUILD)/results,
# each with date, machine and command. Needs root.
.PHONY: bench-results
bench-results: test-packages run-packages built
	@bench/results.sh $(BUILD)

# bench/results/large-batch.md: a batch eight times as large, in several ways; about five minutes.
.PHONY: bench-large-batch
bench-large-batch: build-packages run-packages built
	@bench/large_batch.sh $(BUILD)

# A codec, a schedule, a synchronization, a plan and a transport are added to a copy of the tree, a file and a line each;
# and programs of before against the library of today. Two minutes.
.PHONY: test-technique
test-technique: test-packages build-packages built
	@tests/add_technique.sh $(BUILD)

# Recording, reading and the report page; steps of a recording beside the wall clock, on one host and two: minutes.
.PHONY: test-trace
test-trace: build-packages built
	@tests/trace.sh $(BUILD)
	@tests/steps.sh $(BUILD)

# All of the PyTorch binding, and the wheel: minutes. make test-python TORCH=2.15.0 runs it with that version from pip,
# gigabytes; without, it is the one that scripts/torch finds.
.PHONY: test-python
test-python: build-packages built wheel
	@TORCH=$(TORCH) tests/python.sh $(BUILD) full
	@TORCH=$(TORCH) tests/wheel.sh $(BUILD)

# Parameter servers: every schedule on 1 to 4 servers and 1 to 6 workers beside arch=direct, bit for bit; codecs over
# them; factors. Then ranks of jobs over servers are killed at random moments, 20 times each: minutes.
.PHONY: test-servers
test-servers: build-packages built
	@PS_FULL=1 $(BUILD)/tests/test_ps && $(BUILD)/tests/test_ps_codec && $(BUILD)/tests/test_sfb
	@tests/servers.sh $(BUILD)

# 200 jobs in a lab whose network loses, delays, reorders, duplicates and alters packets: half an hour; needs root.
.PHONY: test-networks
test-networks: build-packages zmq-packages built
	@tests/bad_networks.sh $(BUILD)

# 500 kills of ranks that have forked children, over every transport, with and without a launcher: seven minutes.
.PHONY: test-kills
test-kills: build-packages built
	@tests/kills.sh $(BUILD)

# Elastic jobs: 100 ranks are stopped and 50 hosts cut off, and the others must go on within the deadline plus 2 s. Seven
# minutes; needs root.
.PHONY: test-elastic
test-elastic: build-packages built
	@tests/elastic.sh $(BUILD)
	@tests/elastic.sh $(BUILD) soak

# Workers of elastic trainings without servers are killed at random moments, 40 times or more: minutes.
.PHONY: test-elastic-train
test-elastic-train: build-packages built
	@tests/elastic_train.sh $(BUILD)

# Time to an accuracy beside PyTorch's DistributedDataParallel with Gloo, bench/results/pytorch.md: ten minutes; needs root.
.PHONY: bench-fashion
bench-fashion: build-packages python-packages built
	@bench/torch_fashion.sh $(BUILD)

# The accuracy of every synchronization and codec, bench/results/accuracy.md: hours; it goes on where it was stopped.
.PHONY: bench-accuracy
bench-accuracy: build-packages run-packages built
	@bench/accuracy.sh $(BUILD)

# The tables of bench/results/schedules.md: schedules on replayed models, tuning, the engine's own cost. Nine minutes;
# needs root.
.PHONY: bench-overlap
bench-overlap: build-packages built
	@bench/overlap.sh $(BUILD)

# One-way sends beside iperf3 over paths with delay and loss, bench/results/transports.md: an hour and a half; needs root.
.PHONY: bench-networks
bench-networks: build-packages network-packages built
	@bench/networks.sh $(BUILD)

# strategy=auto beside twenty lines, bench/results/auto.md: replayed, real and predicted steps; half an hour, needs root.
.PHONY: bench-auto
bench-auto: build-packages run-packages built
	@bench/auto.sh $(BUILD)

# The tables of bench/results/prediction.md: steps measured in a lab of four hosts (root; 20 minutes, it goes on where it
# was stopped) and steps that others measured, both beside what is predicted.
.PHONY: bench-model
bench-model: build-packages zmq-packages built
	@bench/model_lab.sh $(BUILD)
	@bench/model_tables.sh $(BUILD)

# The product of tests and the faults over rdma, zmq and mpi; half an hour.
.PHONY: test-transports
test-transports: build-packages cluster-packages built
	@tests/transports.sh $(BUILD)

# A training job under mpirun of Open MPI and MPICH, torchrun, and srun of a Slurm that is set up for it; needs root.
.PHONY: test-clusters
test-clusters: build-packages cluster-packages built
	@tests/clusters.sh $(BUILD)

# Below PREFIX; staged below DESTDIR, if that is set. Installs no packages.
.PHONY: install
install: all
	@cmake --install $(BUILD)

# Debian packages in $(BUILD), of a build of its own below /usr. Installs what makes packages: it is for a machine that
# builds them. docs/how-to/build.md has them installed.
.PHONY: deb
deb: deb-packages
	@cmake -G Ninja -S . -B $(BUILD)/deb -DCMAKE_INSTALL_PREFIX=/usr -DGW_TESTS=OFF >/dev/null
	@cmake --build $(BUILD)/deb -j $(JOBS)
	@rm -f $(BUILD)/*.deb
	@cd $(BUILD)/deb && cpack --config CPackConfig.cmake -B $(CURDIR)/$(BUILD) >/dev/null
	@ls $(BUILD)/*.deb

# A Python wheel in $(BUILD), of a build of its own: package, library and program, for any Linux whose C library is not
# too old. Installs packages.
.PHONY: wheel
wheel: wheel-packages
	@scripts/wheel $(BUILD)

# The parts of docs that are made from the source: headers, help texts, lists of techniques, Python's docstrings. tests/tidy
# says when they are out of date.
.PHONY: reference
reference: built
	@python3 scripts/reference $(BUILD)

# The library and the program for 64-bit ARM in build-arm64, and its unit tests by qemu. It says which packages it needs
# (of the other architecture), and installs none.
.PHONY: test-arm64
test-arm64:
	@tests/arm64.sh build-arm64

# Every build, also those of tests/run.
.PHONY: clean
clean:
	rm -rf $(BUILD) build-*

.PHONY: run-packages
run-packages:
	@scripts/packages $(RUN_PACKAGES)

.PHONY: python-packages
python-packages:
	@scripts/packages $(PYTHON_PACKAGES)

.PHONY: cluster-packages
cluster-packages:
	@scripts/packages $(CLUSTER_PACKAGES)

.PHONY: zmq-packages # of the rows over transport=zmq
zmq-packages:
	@scripts/packages libzmq3-dev

.PHONY: network-packages
network-packages:
	@scripts/packages iperf3 iproute2

.PHONY: build-packages
build-packages:
	@scripts/packages $(BUILD_PACKAGES)

.PHONY: test-packages
test-packages:
	@scripts/packages $(BUILD_PACKAGES) $(TEST_PACKAGES)

.PHONY: deb-packages
deb-packages:
	@scripts/packages $(BUILD_PACKAGES) $(DEB_PACKAGES)

.PHONY: wheel-packages
wheel-packages:
	@scripts/packages $(BUILD_PACKAGES) $(WHEEL_PACKAGES)

.PHONY: needed-packages
needed-packages:
	@scripts/packages --need $(NEEDED_PACKAGES)
	@scripts/packages --wish $(OPTIONAL_PACKAGES)
