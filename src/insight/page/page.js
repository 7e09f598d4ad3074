// page.js - draws the report of gradwire trace report. Times in the data are microseconds. Loads nothing.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const K = Object.fromEntries(data.kinds.map((name, number) => [name, number]));
const nameOf = number => data.names[number] || '';

// ---- units ----

function time(us) {
  const steps = [[1e6, 's'], [1e3, 'ms'], [1, 'µs'], [1e-3, 'ns']];
  const [unit, word] = steps.find(([size]) => us >= size) || steps[3];
  return us === 0 ? '0' : `${+(us / unit).toPrecision(3)} ${word}`;
}

function bytes(count) {
  const words = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; count >= 1024 && i < 4; i++) count /= 1024;
  return `${+count.toPrecision(3)} ${words[i]}`;
}

// The smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
function niceTick(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(factor => factor * power).find(tick => tick >= least * 0.999);
}

function rate(perSecond) {
  const [unit, word] = [[1e9, 'GB/s'], [1e6, 'MB/s'], [1e3, 'kB/s']].find(([size]) => perSecond >= size) || [1, 'B/s'];
  return `${+(perSecond / unit).toPrecision(3)} ${word}`;
}

const percent = part => `${Math.round(100 * part)} %`;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// ---- colours: from the style sheet; canvases read them again when the theme changes ----

const themes = ['system', 'light', 'dark'];
let theme = 'system', colours = {};
const prefersDark = matchMedia('(prefers-color-scheme: dark)');
const redraws = [];

function applyTheme() {
  const dark = theme === 'dark' || (theme === 'system' && prefersDark.matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  $('theme').textContent = `Theme: ${theme}`;
  const style = getComputedStyle(document.documentElement);
  const read = ['forward', 'backward', 'update', 'coding', 'exposed', 'waiting', 'other', 'operation', 'wire', 'shm',
    'path', 'mark', 'text', 'soft', 'line', 'card', 'page', 'accent'];
  colours = Object.fromEntries(read.map(name => [name, style.getPropertyValue('--' + name).trim()]));
  redraws.forEach(draw => draw());
}

function nextTheme() {
  theme = themes[(themes.indexOf(theme) + 1) % 3];
  applyTheme();
}

function legend(id, entries) {
  for (const [word, colour] of entries) {
    const item = element('li', word);
    const box = element('i');
    box.style.background = `var(--${colour})`;
    item.prepend(box);
    $(id).append(item);
  }
}

// A canvas as sharp as the screen; returns its context, in CSS pixels.
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + 'px';
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, height);
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  return context;
}

// ---- the head ----

// Waiting is the second and the third together (docs/reference/glossary.md).
const parts = [['compute', 'backward'], ['waiting: exposed communication', 'exposed'], ['waiting for ranks', 'waiting'],
  ['other', 'other']];
const median = data.median; // one step of the recording, whether the chart has it or not
const lengthOf = step => step[3] + step[4] + step[5] + step[6]; // mean over the ranks
const sum = values => values.reduce((total, value) => total + value, 0);

const sharesOf = step => [3, 4, 5, 6, 7].map(k => step[k] / (lengthOf(step) || 1));

function worstRank() {
  const caused = data.ranks.map(rank => rank.caused);
  const most = Math.max(...caused);
  return { rank: caused.indexOf(most), us: most, share: most / (sum(caused) || 1) };
}

function verdict() {
  const sent = sum(data.links.map(link => link.bytes));
  if (!median) {
    return sent ? `${bytes(sent)} in ${sum(data.links.map(l => l.messages))} messages between ${data.ranks.length} ranks` +
      ` in ${time(data.us)}.` : `${data.ranks.length} ranks, ${time(data.us)}.`;
  }
  const [compute, exposed, forRanks] = sharesOf(median), worst = worstRank();
  let text = `A step takes ${time(lengthOf(median))}, of which ${percent(compute)} is compute and ` +
    `${percent(exposed + forRanks)} waiting.`;
  if (exposed >= 0.02) text += ` ${percent(exposed)} is communication that nothing hides.`;
  if (forRanks >= 0.02) text += ` ${percent(forRanks)} is waiting for other ranks` +
    (worst.share > 1.5 / data.ranks.length ? `, most of all for rank ${worst.rank}.` : ', for all of them about alike.');
  if (exposed + forRanks < 0.02) text += ' Communication is hidden almost entirely.';
  return text;
}

function tile(number, words) {
  const item = element('li');
  item.append(element('b', number), element('span', words));
  $('tiles').append(item);
}

function head() {
  const hosts = data.hosts, ranks = (data.recorded < data.world ? `${data.recorded} of ` : '') + (data.world || data.ranks.length);
  document.title = `${data.title} - gradwire`;
  $('title').textContent = data.title;
  $('facts').textContent = `${ranks} ranks on ${hosts} host${hosts > 1 ? 's' : ''}, ${time(data.us)}` +
    (data.wall ? `, ${new Date(data.wall).toISOString().slice(0, 16).replace('T', ' ')} UTC` : '') +
    (data.strategy ? ` — ${data.strategy}` : '') +
    (data.changes ? ` (that of the last step; it changed ${data.changes} time${data.changes > 1 ? 's' : ''})` : '');
  $('warning').hidden = !data.warning;
  $('warning').textContent = data.warning ? `This recording is not whole: ${data.warning}.` : '';
  $('verdict').textContent = verdict();
  data.advice.forEach(text => $('advice').append(element('li', text)));
  const sent = sum(data.links.map(link => link.bytes));
  if (median) {
    const [compute, exposed, forRanks, other, hidden] = sharesOf(median);
    tile(time(lengthOf(median)), `step ${median[0]}, the median of ${data.counted}` + (data.counted < data.stepCount ?
      `; not counted: ${data.stepCount - data.counted} without a step before` : ''));
    tile(percent(compute), 'of it is compute');
    tile(percent(exposed + forRanks), `is waiting: ${percent(exposed)} exposed communication, ${percent(forRanks)} for ranks`);
    tile(percent(other), 'is other: data, loss, what is not recorded');
    tile(percent(hidden), 'more communication is hidden behind compute');
  }
  tile(sent ? bytes(sent) : 'none', sent ? `sent in ${sum(data.links.map(l => l.messages))} messages, all ranks` :
    'sent in messages: memory is shared');
  if (!median && worstRank().us) tile(time(worstRank().us), `the others waited for rank ${worstRank().rank}`);
  const unsure = Math.max(...data.ranks.map(rank => rank.unsure));
  $('footer').textContent = 'Written by gradwire trace report. ' + (unsure > 0 ?
    `Clocks of different hosts are aligned to ${time(unsure)}.` : 'All ranks read the same clock.');
}

// ---- steps ----

const stepsLeft = 54; // pixels for the numbers of the axis
let chosenStep = median ? data.steps.findIndex(step => step[0] >= median[0]) : -1;

function stepAt(index) {
  const s = data.steps[index];
  return `Step ${s[0]}: ${time(lengthOf(s))}, ${time(s[2] - s[1])} from the first rank's beginning to the last one's end; ` +
    parts.map(([word], k) => `${word} ${time(s[3 + k])}`).join(', ');
}

function drawSteps() {
  const canvas = $('steps'), height = 220, left = stepsLeft, bottom = 20;
  const g = prepare(canvas, height), width = canvas.clientWidth - left, count = data.steps.length;
  const lengths = data.steps.map(lengthOf);
  const sorted = [...lengths].sort((a, b) => a - b);
  const tick = niceTick((Math.min(sorted[count - 1], 2.5 * sorted[count >> 1]) || 1) / 4);
  const top = 4 * tick; // one slow step must not flatten all others
  const y = us => (height - bottom) - (height - bottom - 6) * Math.min(us, top) / top;
  g.fillStyle = colours.soft;
  g.strokeStyle = colours.line;
  for (let k = 0; k <= 4; k++) {
    g.beginPath(); g.moveTo(left, y(tick * k)); g.lineTo(left + width, y(tick * k)); g.stroke();
    g.textAlign = 'right'; g.fillText(time(tick * k), left - 5, y(tick * k));
  }
  const each = width / count, bar = Math.max(each - (each > 5 ? 1 : 0), 0.5);
  data.steps.forEach((s, i) => {
    let from = 0;
    parts.forEach(([, colour], k) => {
      g.fillStyle = colours[colour];
      g.fillRect(left + i * each, y(from + s[3 + k]), bar, y(from) - y(from + s[3 + k]));
      from += s[3 + k];
    });
    if (i === chosenStep) {
      g.strokeStyle = colours.text;
      g.strokeRect(left + i * each - 0.5, y(Math.min(lengths[i], top)) - 1.5, bar + 1, y(0) - y(lengths[i]) + 2);
    }
  });
  g.fillStyle = colours.soft;
  g.textAlign = 'left'; g.fillText(`step ${data.steps[0][0]}`, left, height - 8);
  g.textAlign = 'right'; g.fillText(`${data.steps[count - 1][0]}`, left + width, height - 8);
}

function chooseStep(index, show) {
  chosenStep = Math.max(0, Math.min(data.steps.length - 1, index));
  $('steps-detail').textContent = stepAt(chosenStep);
  drawSteps();
  if (show) showStep(data.steps[chosenStep][0]);
}

function steps() {
  if (!data.steps.length) { $('steps-section').hidden = true; return; }
  legend('steps-legend', parts);
  redraws.push(drawSteps);
  const canvas = $('steps');
  const at = event => Math.floor((event.offsetX - stepsLeft) / (canvas.clientWidth - stepsLeft) * data.steps.length);
  canvas.addEventListener('mousemove', event => chooseStep(at(event)));
  canvas.addEventListener('click', event => chooseStep(at(event), true));
  canvas.addEventListener('keydown', event => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };
    if (event.key === 'Enter') chooseStep(chosenStep, true);
    else if (moves[event.key]) chooseStep(chosenStep + moves[event.key]);
    else return;
    event.preventDefault();
  });
  const longest = Math.max(...data.parts.map(p => p[0] + p[1] + p[2] + p[3])) || 1;
  data.parts.forEach((p, rank) => {
    const row = element('div', undefined, { class: 'row' }), bar = element('div', undefined, { class: 'bar' });
    parts.forEach(([word, colour], k) => {
      const piece = element('span', undefined, { title: `${word} ${time(p[k])}` });
      piece.style.cssText = `width:${100 * p[k] / longest}%;background:var(--${colour})`;
      bar.append(piece);
    });
    row.append(element('label', `rank ${rank}`), bar, element('output', time(p[0] + p[1] + p[2] + p[3])));
    $('rank-bars').append(row);
  });
}

// ---- the timeline ----

const groups = [
  { word: 'caller', rows: 2, kinds: ['forward', 'backward', 'waited'] },
  { word: 'updates', rows: 1, kinds: ['applied'] },
  { word: 'coding, sums', rows: 2, kinds: ['encoded', 'reduced', 'decoded'] },
  { word: 'operations', rows: 4, kinds: ['operation'] },
  { word: 'transport', rows: 3, kinds: ['sent', 'shm'] },
];
const spanColour = { forward: 'forward', backward: 'backward', applied: 'update', waited: 'waiting', encoded: 'coding',
  reduced: 'coding', decoded: 'coding', operation: 'operation', sent: 'wire', shm: 'shm' };
const rowHeight = 15, ruler = 40, gutter = 134, gap = 12;
const tracks = []; // { rank, word, y, spans: [{kind, name, begin, end, number, bytes, peer}] }
const callerY = []; // by rank: where its first row is
let tracksHeight = ruler, view = { from: 0, to: 1 }, selected = null;
const full = { from: 0, to: Math.max(data.window[1] - data.window[0], 1e-3) };

// Overlapping spans of a group get rows of their own.
function layOut() {
  data.spans.forEach((flat, rank) => {
    const spans = [];
    for (let i = 0; i < flat.length; i += 7) {
      spans.push({ kind: data.kinds[flat[i]], name: nameOf(flat[i + 1]), begin: flat[i + 2],
        end: flat[i + 2] + flat[i + 3], number: flat[i + 4], bytes: flat[i + 5], peer: flat[i + 6], rank });
    }
    callerY[rank] = tracksHeight;
    for (const group of groups) {
      const members = spans.filter(s => group.kinds.includes(s.kind) && s.end > s.begin).sort((a, b) => a.begin - b.begin);
      if (!members.length) continue;
      const rows = [];
      for (const span of members) {
        let row = rows.find(r => r.spans[r.spans.length - 1].end <= span.begin + 1e-6);
        if (!row && rows.length < group.rows) rows.push(row = { rank, word: rows.length ? '' : group.word, spans: [] });
        if (!row) row = rows[rows.length - 1];
        row.spans.push(span);
      }
      for (const row of rows) {
        row.y = tracksHeight;
        tracksHeight += rowHeight;
        tracks.push(row);
      }
    }
    tracksHeight += gap;
  });
}

const chart = () => $('tracks').clientWidth - gutter;
const xOf = us => gutter + (us - view.from) / (view.to - view.from) * chart();
const usOf = x => view.from + (x - gutter) / chart() * (view.to - view.from);

function drawRuler(g) {
  const tick = niceTick((view.to - view.from) / (chart() / 110));
  g.fillStyle = colours.soft; g.strokeStyle = colours.line; g.textAlign = 'left';
  for (let t = Math.ceil(view.from / tick) * tick; t < view.to; t += tick) {
    g.beginPath(); g.moveTo(xOf(t), 0); g.lineTo(xOf(t), tracksHeight); g.stroke();
    g.fillText(time(t), xOf(t) + 3, 8);
  }
  let free = 0; // x from which a label does not cover the previous one
  for (const step of data.steps) {
    const begin = step[1] - data.window[0], end = step[2] - data.window[0];
    if (end < view.from || begin > view.to) continue;
    const x = Math.max(xOf(begin), gutter), word = `step ${step[0]}`, needed = g.measureText(word).width + 12;
    g.fillStyle = colours.mark;
    if (begin >= view.from) g.fillRect(x, 26, 1, 6);
    if (x < free || xOf(end) - x < needed) continue;
    g.fillText(word, x + 4, 28);
    free = x + needed;
  }
}

function drawTrack(g, track, width) {
  let last = -1;
  for (const span of track.spans) {
    if (span.end < view.from || span.begin > view.to) continue;
    const x = Math.max(xOf(span.begin), gutter), right = Math.min(xOf(span.end), width);
    if (right - last < 0.5) continue; // too small to see
    g.fillStyle = colours[spanColour[span.kind]];
    g.fillRect(x, track.y + 1, Math.max(right - x - (right - x > 4 ? 1 : 0), 0.7), rowHeight - 3);
    last = right;
    if (right - x > 44) label(g, span, x, right - x, track.y);
    if (span === selected) {
      g.strokeStyle = colours.text; g.lineWidth = 2;
      g.strokeRect(x, track.y + 1, Math.max(right - x - 1, 2), rowHeight - 3); g.lineWidth = 1;
    }
  }
}

function label(g, span, x, room, y) {
  const light = document.documentElement.dataset.theme === 'light';
  const dark = ['backward', 'waited', 'encoded', 'reduced', 'decoded'].includes(span.kind);
  g.save();
  g.beginPath(); g.rect(x, y, room - 3, rowHeight); g.clip();
  g.fillStyle = light ? (dark ? '#ffffff' : '#1b1f26') : (span.kind === 'forward' || span.kind === 'operation' ?
    '#ffffff' : '#101319');
  g.textAlign = 'left';
  g.fillText((span.kind === 'waited' ? 'waits: ' : '') + (span.name || span.kind), x + 3, y + rowHeight / 2 - 0.5);
  g.restore();
}

function drawPath(g, width) {
  if (!data.path || !$('show-path').checked) return;
  g.save();
  g.beginPath(); g.rect(gutter, 0, width - gutter, tracksHeight); g.clip();
  g.strokeStyle = colours.path; g.lineWidth = 2;
  const y = rank => callerY[rank] - 3;
  let before = null;
  for (const [, rank, from, , begin, took] of data.path.parts) {
    g.beginPath();
    if (from >= 0) { g.moveTo(xOf(begin), y(from)); g.lineTo(xOf(begin + took), y(rank)); }
    else {
      if (before !== null && before !== rank) { g.moveTo(xOf(begin), y(before)); g.lineTo(xOf(begin), y(rank)); }
      else g.moveTo(xOf(begin), y(rank));
      g.lineTo(xOf(begin + took), y(rank));
    }
    g.stroke();
    before = rank;
  }
  g.restore();
}

function drawLanes() {
  const canvas = $('tracks'), g = prepare(canvas, tracksHeight), width = canvas.clientWidth;
  drawRuler(g);
  for (const track of tracks) drawTrack(g, track, width);
  g.fillStyle = colours.card; g.fillRect(0, 0, gutter, tracksHeight);
  g.textAlign = 'left';
  for (const track of tracks) {
    if (callerY[track.rank] === track.y) {
      g.fillStyle = colours.text; g.font = '600 11px system-ui, sans-serif';
      g.fillText(`rank ${track.rank}`, 6, track.y + rowHeight / 2);
      g.font = '11px system-ui, sans-serif';
    }
    g.fillStyle = colours.soft; g.fillText(track.word, 56, track.y + rowHeight / 2);
  }
  drawPath(g, width);
}

function look(from, to) {
  const least = 0.02, span = Math.min(Math.max(to - from, least), full.to);
  from = Math.max(0, Math.min(from, full.to - span));
  view = { from, to: from + span };
  drawLanes();
}

function zoom(factor, around) {
  const at = around === undefined ? (view.from + view.to) / 2 : around;
  look(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

const pan = part => look(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

function showStep(number) {
  const step = data.steps.find(s => s[0] === number);
  if (!step) return;
  const begin = step[1] - data.window[0], end = step[2] - data.window[0], margin = (end - begin) * 0.03;
  if (end < 0 || begin > full.to) { // pages hold only part of a long recording
    $('tracks-detail').textContent = `Step ${number} is outside of the part of the recording that this page draws.`;
    return;
  }
  $('step').value = number;
  look(begin - margin, end + margin);
}

function describe(span) {
  const where = span.kind === 'sent' ? ` to rank ${span.peer}` : '';
  const of = ['operation', 'sent', 'shm', 'waited'].includes(span.kind) ? 'operation' : 'step';
  return `Rank ${span.rank}, ${span.kind}${where}: ${span.name || 'no name'}, ${time(span.end - span.begin)} at ` +
    `${time(span.begin)}, ${of} ${span.number}` + (span.bytes ? `, ${bytes(span.bytes)}` : '');
}

function select(span, keepInView) {
  selected = span;
  $('tracks-detail').textContent = span ? describe(span) : 'Nothing recorded there.';
  if (span && keepInView && (span.begin < view.from || span.begin > view.to)) {
    const half = (view.to - view.from) / 2;
    look(span.begin - half, span.begin + half);
  } else drawLanes();
}

function spanAt(x, y) {
  const track = tracks.find(l => y >= l.y && y < l.y + rowHeight), us = usOf(x), slack = (view.to - view.from) / chart() * 2;
  return track && track.spans.find(s => us >= s.begin - slack && us <= s.end + slack);
}

function moveSelection(along, across) {
  let track = selected ? tracks.find(l => l.spans.includes(selected)) : null;
  if (!track) { track = tracks[0]; if (track) select(track.spans.find(s => s.end >= view.from) || track.spans[0], true); return; }
  if (across) {
    track = tracks[Math.max(0, Math.min(tracks.length - 1, tracks.indexOf(track) + across))];
    const near = track.spans.reduce((a, b) =>
      Math.abs(b.begin - selected.begin) < Math.abs(a.begin - selected.begin) ? b : a);
    select(near, true);
  } else {
    select(track.spans[track.spans.indexOf(selected) + along] || selected, true);
  }
}

const actions = {
  left: () => pan(-0.25), right: () => pan(0.25), in: () => zoom(0.5), out: () => zoom(2), fit: () => look(full.from, full.to),
};
const keys = { ArrowLeft: 'left', ArrowRight: 'right', '+': 'in', '=': 'in', '-': 'out', 0: 'fit', Home: 'fit' };

function timeline() {
  layOut();
  if (!tracks.length) { $('timeline').hidden = true; return; }
  const drawn = new Set(tracks.flatMap(track => track.spans.map(span => spanColour[span.kind])).concat('path'));
  legend('timeline-legend', [['forward', 'forward'], ['backward', 'backward'], ['update', 'update'],
    ['waiting', 'waiting'], ['coding, sums', 'coding'], ['operation', 'operation'], ['message', 'wire'],
    ['shared memory', 'shm'], ['critical path', 'path']].filter(([, colour]) => drawn.has(colour)));
  const canvas = $('tracks');
  document.querySelectorAll('[data-do]').forEach(button =>
    button.addEventListener('click', () => actions[button.dataset.do]()));
  $('show-path').addEventListener('change', drawLanes);
  for (const step of data.steps) $('step').append(element('option', step[0], { value: step[0] }));
  $('step-choice').hidden = !data.steps.length;
  $('step').addEventListener('change', event => showStep(+event.target.value));
  canvas.addEventListener('keydown', event => {
    const walks = { n: [1, 0], p: [-1, 0], j: [0, 1], k: [0, -1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (keys[event.key]) actions[keys[event.key]]();
    else if (walks[event.key.toLowerCase()]) moveSelection(...walks[event.key.toLowerCase()]);
    else return;
    event.preventDefault();
  });
  canvas.addEventListener('wheel', event => {
    if (event.ctrlKey || event.metaKey) zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, usOf(event.offsetX));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / chart());
    else return; // the page scrolls
    event.preventDefault();
  }, { passive: false });
  let drag = null;
  canvas.addEventListener('pointerdown', event => { drag = event.offsetX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener('pointerup', () => { drag = null; });
  canvas.addEventListener('pointermove', event => {
    if (drag === null) {
      const span = spanAt(event.offsetX, event.offsetY);
      if (span && span !== selected) select(span);
      return;
    }
    pan((drag - event.offsetX) / chart());
    drag = event.offsetX;
  });
  view = { ...full };
  redraws.push(drawLanes);
  openOn();
}

// The page opens on a few steps around the median one, or on the first few operations.
function openOn() {
  if (!median) {
    const seen = tracks.find(track => track.word === 'operations'), last = seen && seen.spans[Math.min(7, seen.spans.length - 1)];
    if (last) view = { from: seen.spans[0].begin * 0.98, to: Math.min(full.to, last.end * 1.02) };
    return;
  }
  const begin = median[1] - data.window[0], end = median[2] - data.window[0], length = end - begin;
  const from = Math.max(0, begin - length), to = Math.min(full.to, end + length);
  if (to > from) view = { from, to };
  $('step').value = median[0];
}

// ---- the critical path ----

const pathColour = { forward: 'forward', backward: 'backward', coding: 'coding', update: 'update', 'on the wire': 'wire',
  'shared memory': 'shm', handling: 'operation', other: 'other' };

function table(id, titles, rows) {
  const made = $(id), headRow = element('tr');
  titles.forEach(([word, left]) => headRow.append(element('th', word, left ? { class: 'l', scope: 'col' } : { scope: 'col' })));
  made.createTHead().append(headRow);
  const body = made.createTBody();
  for (const row of rows) {
    const line = element('tr');
    row.forEach((cell, k) => line.append(element('td', cell, titles[k][1] ? { class: 'l' } : {})));
    body.append(line);
  }
}

function criticalPath() {
  if (!data.path || !data.path.parts.length) { $('path-section').hidden = true; return; }
  const whole = sum(data.path.totals) || 1, present = data.pathKinds.map((word, k) => [word, data.path.totals[k]])
    .filter(([, us]) => us > 0);
  const ranks = new Set(data.path.parts.map(part => part[1])).size;
  $('path-words').textContent = (data.path.step === null ? 'The whole recording' : `Step ${data.path.step}, the median one`) +
    `: ${time(whole)}, on ${ranks} rank${ranks > 1 ? 's' : ''}. To make it shorter, one of these has to become shorter; ` +
    'everything else is hidden behind them.';
  for (const [word, us] of present) {
    const piece = element('span', undefined, { title: `${word} ${time(us)}` });
    piece.style.cssText = `width:${100 * us / whole}%;background:var(--${pathColour[word]})`;
    $('path-bar').append(piece);
  }
  legend('path-legend', present.map(([word, us]) => [`${word} ${percent(us / whole)} (${time(us)})`, pathColour[word]]));
  table('path-table', [['at'], ['took'], ['rank', true], ['spent', true], ['on', true]],
    data.path.parts.slice(0, 500).map(([kind, rank, from, name, begin, took]) =>
      [time(Math.max(begin - data.path.parts[0][4], 0)), time(took), from >= 0 ? `${from} → ${rank}` : `${rank}`,
        data.pathKinds[kind], nameOf(name)]));
}

// ---- traffic ----

function matrix(id, value, words, colour) {
  const ranks = data.ranks.length, shown = Math.min(ranks, 64), made = element('table', undefined, { class: 'matrix' });
  let top = 0;
  for (let a = 0; a < shown; a++) for (let b = 0; b < shown; b++) top = Math.max(top, value(a, b));
  if (!top) { $(id).append(element('p', words.none)); return; }
  const first = made.insertRow();
  first.append(element('th', ''));
  for (let b = 0; b < shown; b++) first.append(element('th', b, { scope: 'col' }));
  for (let a = 0; a < shown; a++) {
    const row = made.insertRow();
    row.append(element('th', a, { scope: 'row' }));
    for (let b = 0; b < shown; b++) {
      const cell = element('td', a === b || !value(a, b) ? '' : words.show(value(a, b)));
      cell.style.background = value(a, b) ? `rgba(var(--${colour}), ${0.08 + 0.6 * value(a, b) / top})` : 'var(--page)';
      row.append(cell);
    }
  }
  $(id).append(made);
}

function spark(link, top) {
  const width = 360, height = 22, each = width / link.bins.length;
  const bars = link.bins.map((b, i) => b > 0 ? `<rect x="${(i * each).toFixed(1)}" y="${(height - height * b / top).toFixed(1)}"` +
    ` width="${Math.max(each - 0.4, 0.6).toFixed(1)}" height="${(height * b / top).toFixed(1)}"/>` : '').join('');
  const cell = element('td', undefined, { class: 'l' });
  cell.innerHTML = `<svg viewBox="0 0 ${width} ${height}" style="width:${width}px;fill:var(--wire)" aria-hidden="true">` +
    `<line x1="0" x2="${width}" y1="${height}" y2="${height}" stroke="var(--line)"/>${bars}</svg>`;
  return cell;
}

function traffic() {
  const ranks = data.ranks.length, sent = {};
  for (const link of data.links) sent[link.src * ranks + link.dst] = link.bytes;
  matrix('traffic', (a, b) => sent[a * ranks + b] || 0,
    { none: 'No messages: everything went through memory that the ranks share.', show: bytes }, 'heat');
  matrix('waits', (a, b) => data.waits[a * ranks + b], { none: 'Nobody waited.', show: time }, 'cold');
  if (!data.links.length) { $('links-figure').hidden = true; return; }
  const top = Math.max(...data.links.map(link => Math.max(...link.bins))) || 1, made = element('table');
  const titles = ['link', 'bytes', 'messages', 'busy', 'while busy', `peak of ${time(data.bin)}`, 'queued', 'retries'];
  const headRow = made.createTHead().insertRow();
  titles.forEach((word, k) => headRow.append(element('th', word, k ? { scope: 'col' } : { class: 'l', scope: 'col' })));
  headRow.append(element('th', `0 to ${time(data.us)}, up to ${rate(top / data.bin * 1e6)}`, { class: 'l', scope: 'col' }));
  const body = made.createTBody();
  for (const link of data.links.slice(0, 256)) {
    const row = body.insertRow();
    [`${link.src} → ${link.dst}`, bytes(link.bytes), link.messages, percent(link.busy / data.us),
      link.busy ? rate(link.bytes / link.busy * 1e6) : '', rate(link.peak), time(link.queued), link.retries]
      .forEach((cell, k) => row.append(element('td', cell, k ? {} : { class: 'l' })));
    row.append(spark(link, top));
  }
  $('links').append(made);
}

// ---- curves ----

function curve(name, points) {
  const width = 560, height = 220, left = 52, bottom = 24, figure = element('figure');
  const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
  const tick = niceTick((Math.max(...ys) - Math.min(0, ...ys)) / 5 || 0.2);
  const low = tick * Math.floor(Math.min(0, ...ys) / tick), high = tick * Math.ceil(Math.max(...ys) / tick - 1e-9) || tick, first = xs[0], last = Math.max(xs[xs.length - 1], first + 1);
  const x = v => left + (v - first) / (last - first) * (width - left - 8);
  const y = v => height - bottom - (v - low) / (high - low) * (height - bottom - 10);
  const ticks = Array.from({ length: Math.round((high - low) / tick) + 1 }, (_, k) => low + k * tick);
  const lines = ticks.map(v =>
    `<line x1="${left}" x2="${width - 8}" y1="${y(v)}" y2="${y(v)}" stroke="var(--line)"/>` +
    `<text x="${left - 6}" y="${y(v) + 4}" text-anchor="end">${+v.toPrecision(3)}</text>`).join('');
  const way = points.map((p, i) => `${i ? 'L' : 'M'}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join('');
  figure.append(element('figcaption', `${name}: ${+ys[0].toPrecision(3)} at step ${first}, ` +
    `${+ys[ys.length - 1].toPrecision(3)} at step ${xs[xs.length - 1]}; mean over the ranks`));
  const box = element('div');
  box.innerHTML = `<svg viewBox="0 0 ${width} ${height}" aria-hidden="true">${lines}` +
    `<path d="${way}" fill="none" stroke="var(--backward)" stroke-width="1.6" stroke-linejoin="round"/>` +
    `<text x="${left}" y="${height - 6}">step ${first}</text>` +
    `<text x="${width - 8}" y="${height - 6}" text-anchor="end">${xs[xs.length - 1]}</text></svg>`;
  figure.append(box);
  $('curves').append(figure);
}

function curves() {
  $('curves-section').hidden = !data.curves.length;
  for (const { name, points } of data.curves) curve(nameOf(name), points);
}

function totals() {
  table('totals', [['what', true], ['name', true], ['count'], ['time, all ranks'], ['mean'], ['longest'], ['bytes']],
    data.totals.map(([kind, name, count, us, longest, size]) => [data.kinds[kind], nameOf(name), count,
      us ? time(us) : '', us ? time(us / count) : '', longest ? time(longest) : '', size ? bytes(size) : '']));
}

// ---- draw everything ----

head();
steps();
timeline();
criticalPath();
traffic();
curves();
totals();
document.querySelectorAll('.scroll').forEach(box => { box.tabIndex = 0; });
$('theme').addEventListener('click', nextTheme);
document.addEventListener('keydown', event => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key.toLowerCase() === 't' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) nextTheme();
});
prefersDark.addEventListener('change', applyTheme);
window.addEventListener('resize', () => redraws.forEach(draw => draw()));
applyTheme();
document.documentElement.dataset.ready = 'yes';
