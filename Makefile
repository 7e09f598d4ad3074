# A small front for CMake. On a bare Debian 12 with git and make, `make run` and `make test` install what they need.

BUILD := build
PREFIX ?= /usr/local
SEEDS ?= 1000
SECONDS ?= 600
JOBS := $(shell nproc 2>/dev/null || echo 2)

BUILD_PACKAGES := gcc g++ libc6-dev cmake ninja-build pkg-config libssl-dev zlib1g-dev libpng-dev libdnnl-dev libfabric-dev liblapacke-dev
RUN_PACKAGES := dataset-fashion-mnist
PYTHON_PACKAGES := python3-torch python3-torchvision libopenblas0-pthread dataset-fashion-mnist iproute2
TEST_PACKAGES := clang libclang-rt-14-dev python3 iproute2 procps bsdutils
CLUSTER_PACKAGES := openmpi-bin libopenmpi-dev mpich libmpich-dev libzmq3-dev slurm-wlm munge python3-torch

.PHONY: cluster-packages test-clusters test-transports

CMAKE = cmake -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX)

.PHONY: all bench-overlap test-trace test-python bench-python bench-accuracy bench-model bench-peers bench-large-batch run test test-full test-step test-huge test-sanitize fuzz install clean build-packages run-packages test-packages python-packages

all: build-packages
	@$(CMAKE) -S . -B $(BUILD) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

# A convolutional network learns Fashion-MNIST with four workers on this machine; the page shows where the time went.
run: all run-packages
	@$(BUILD)/gradwire train -n 4 --capture $(BUILD)/run.gwt
	@$(BUILD)/gradwire trace report $(BUILD)/run.gwt -o $(BUILD)/run.html

# Everything that fits in ten minutes on two cores.
test: test-packages all
	@tests/run quick $(BUILD)

# The whole product of architectures, transports, types, operations, sizes and worlds; hours.
test-full: test-packages all
	@tests/run full $(BUILD)

# In virtual time: every schedule over 500 seeds, and over 2,860 seeds (20,000 in all) in which a rank is killed, cut off or
# aborts; parameter servers, whose processes are killed, under every synchronization over 1,000 seeds. Then 500 kills and
# aborts in training steps of real processes. Minutes.
test-step: all
	@TEST_SECONDS=1800 STEP_SEEDS=500 STEP_FAULT_SEEDS=2860 $(BUILD)/tests/test_reducer_sim
	@SERVING_SEEDS=1000 $(BUILD)/tests/test_ps_sim
	@TEST_SECONDS=1800 STEP_KILLS=500 $(BUILD)/tests/test_reducer_faults

# Codecs on a tensor of 2^31 + 1 elements: half a minute and 3 GiB.
test-huge: all
	@$(BUILD)/tests/helper_codec_huge

# All tests under ASan+UBSan and under TSan.
test-sanitize: test-packages build-packages
	@tests/run sanitize

# make fuzz SECONDS=3600: each fuzzer for that long.
fuzz: test-packages build-packages
	@tests/run fuzz $(SECONDS)

# What `gradwire bench --against` compares with: Debian's Open MPI, MPICH and Gloo; and a training step beside PyTorch.
bench-peers: all
	@bench/peers/install.sh
	@bench/peers/build.sh $(BUILD)
	@bench/peers/train.sh $(BUILD)

# docs/large-batch.md: a batch eight times as large, in several ways; about five minutes.
bench-large-batch: all run-packages
	@bench/large_batch.sh $(BUILD)

# Recording, reading and the report page; the PyTorch binding. Minutes each; they say what they need.
test-trace: all
	@tests/trace.sh $(BUILD)

# Parameter servers: every schedule on 1 to 4 servers and 1 to 6 workers beside arch=direct, bit for bit; codecs over
# them; factors. Then ranks of jobs over servers are killed at random moments, 20 times each: minutes.
.PHONY: test-servers
test-servers: all
	@PS_FULL=1 $(BUILD)/tests/test_ps && $(BUILD)/tests/test_ps_codec && $(BUILD)/tests/test_sfb
	@tests/servers.sh $(BUILD)

# 500 kills of ranks that have forked children, over every transport, with and without a launcher: seven minutes.
.PHONY: test-kills
test-kills: all
	@tests/kills.sh $(BUILD)

# Elastic jobs: 100 ranks are stopped and 50 hosts cut off, and the others must go on within the deadline plus 2 s. Seven
# minutes; needs root.
.PHONY: test-elastic
test-elastic: all
	@tests/elastic.sh $(BUILD)
	@tests/elastic.sh $(BUILD) soak

# Workers of elastic trainings without servers are killed at random moments, 40 times or more: minutes.
.PHONY: test-elastic-train
test-elastic-train: all
	@tests/elastic_train.sh $(BUILD)

test-python: all
	@tests/python.sh $(BUILD) full

# Training steps and time to accuracy beside PyTorch's DistributedDataParallel with Gloo, docs/pytorch.md: half an hour;
# needs root.
bench-python: python-packages all
	@bench/torch_lab.sh $(BUILD)
	@bench/torch_fashion.sh $(BUILD)

# The accuracy of every synchronization and codec, docs/synchronization.md: hours; it goes on where it was stopped.
bench-accuracy: all run-packages
	@bench/accuracy.sh $(BUILD)

# The tables of docs/overlap.md: schedules on replayed models, tuning, the engine's own cost. Nine minutes; needs root.
bench-overlap: all
	@bench/overlap.sh $(BUILD)

# The tables of docs/model.md: steps measured in a lab of four hosts (root; 20 minutes, it goes on where it was stopped)
# and steps that others measured, both beside what is predicted.
bench-model: all
	@bench/model_lab.sh $(BUILD)
	@bench/model_tables.sh $(BUILD)

# The product of tests and the faults over rdma, zmq and mpi; half an hour.
test-transports: cluster-packages all
	@tests/transports.sh $(BUILD)

# A training job under mpirun of Open MPI and MPICH, torchrun, and srun of a Slurm that is set up for it; needs root.
test-clusters: cluster-packages all
	@tests/clusters.sh $(BUILD)

install: all
	@cmake --install $(BUILD)

clean:
	rm -rf $(BUILD) build-*

run-packages:
	@scripts/packages $(RUN_PACKAGES)

python-packages:
	@scripts/packages $(PYTHON_PACKAGES)

cluster-packages:
	@scripts/packages $(CLUSTER_PACKAGES)

build-packages:
	@scripts/packages $(BUILD_PACKAGES)

test-packages:
	@scripts/packages $(BUILD_PACKAGES) $(TEST_PACKAGES)
