//! Functions of Rust with parameters of every kind. Each prints what it was passed.

use std::hint::black_box;

#[derive(Clone, Copy)]
pub struct Point {
    pub x: i32,
    pub y: i64,
}

pub struct Person {
    pub name: String,
    pub age: u8,
    pub home: Option<Box<Point>>,
    pub tags: Vec<u16>,
}

#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Color {
    Red,
    Green = 5,
    Blue,
}

pub enum Shape {
    Empty,
    Circle(u32),
    Square { side: i64, name: &'static str },
}

pub type Call = fn();

fn say(function: &str, items: &[(&str, String)]) {
    let shown: Vec<String> = items.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    println!("{{\"function\": \"{function}\", \"items\": {{{}}}}}", shown.join(", "));
}

macro_rules! line {
    ($function:expr, $($key:expr => $value:expr),*) => {
        say($function, &[$(($key, format!("{:?}", $value))),*])
    };
}

#[inline(never)]
pub fn integers(a: i8, b: u8, c: i16, d: u16, e: i32, f: u32) -> i32 {
    line!("shapes::integers", "a" => a, "b" => b, "c" => c, "d" => d, "e" => e, "f" => f, "return" => e);
    e
}

#[inline(never)]
pub fn wide(a: i64, b: u64, c: isize, d: usize, e: bool, f: i64, g: i32) -> bool {
    line!("shapes::wide", "a" => a, "b" => b, "c" => c, "d" => d, "e" => i32::from(e), "f" => f, "g" => g,
          "return" => i32::from(!e));
    !e
}

#[inline(never)]
pub fn texts(part: &str, whole: &String, owned: String, nothing: &str) -> usize {
    line!("shapes::texts", "part" => part, "whole" => whole, "owned" => owned, "nothing" => nothing,
          "return" => part.len());
    part.len()
}

#[inline(never)]
pub fn lists(numbers: &[i32], list: &Vec<u16>, owned: Vec<u8>) -> u8 {
    line!("shapes::lists", "numbers" => numbers, "list" => list, "owned" => owned, "return" => owned[0]);
    owned[0]
}

#[inline(never)]
pub fn structures(point: &Point, person: &Person, value: Point, color: Color) -> i64 {
    line!("shapes::structures", "point.x" => point.x, "point.y" => point.y, "person.name" => person.name,
          "person.age" => person.age, "person.tags" => person.tags, "value.x" => value.x, "value.y" => value.y,
          "color" => match color { Color::Red => "Red", Color::Green => "Green", Color::Blue => "Blue" },
          "return" => point.y + value.y);
    point.y + value.y
}

#[inline(never)]
pub fn mutable(point: &mut Point, boxed: Box<Point>, pair: &(i32, u16)) {
    line!("shapes::mutable", "point.x" => point.x, "boxed.y" => boxed.y, "pair.__0" => pair.0,
          "pair.__1" => pair.1);
    point.x += 1;
}

#[inline(never)]
pub fn shapes(shape: &Shape, maybe: &Option<u32>, home: Option<&u32>) -> u32 {
    let name = match shape { Shape::Empty => "Empty", Shape::Circle(_) => "Circle", Shape::Square { .. } => "Square" };
    line!("shapes::shapes", "shape" => name, "maybe" => if maybe.is_some() { "Some" } else { "None" },
          "home" => if home.is_some() { "Some" } else { "None" }, "return" => maybe.unwrap_or(0) + u32::from(matches!(shape, Shape::Empty)));
    maybe.unwrap_or(0) + u32::from(matches!(shape, Shape::Empty))
}

impl Person {
    #[inline(never)]
    pub fn birthday(&mut self, years: u8) -> u8 {
        self.age += years;
        line!("shapes::Person::birthday", "self.name" => self.name, "years" => years, "return" => self.age);
        self.age
    }
}

// Through pointers, so that nobody changes how they are called.
fn main() {
    black_box(integers as fn(i8, u8, i16, u16, i32, u32) -> i32)(-128, 255, -32768, 65535, -5, 4294967295);
    black_box(wide as fn(i64, u64, isize, usize, bool, i64, i32) -> bool)(i64::MIN, u64::MAX, -3, 4, true, -6, -7);
    let person = Person {
        name: "Anna".to_string(),
        age: 40,
        home: Some(Box::new(Point { x: 1, y: 2 })),
        tags: vec![7, 65535],
    };
    black_box(texts as fn(&str, &String, String, &str) -> usize)(
        &"partial"[1..4], &"whole".to_string(), "owned ".repeat(30), "");
    black_box(lists as fn(&[i32], &Vec<u16>, Vec<u8>) -> u8)(&[1, -2, 3][1..], &person.tags, vec![9, 8]);
    let mut point = Point { x: -1, y: 1 << 40 };
    black_box(structures as fn(&Point, &Person, Point, Color) -> i64)(
        &point, &person, Point { x: -3, y: -4 }, Color::Green);
    black_box(structures as fn(&Point, &Person, Point, Color) -> i64)(&point, &person, point, Color::Blue);
    black_box(mutable as fn(&mut Point, Box<Point>, &(i32, u16)))(
        &mut point, Box::new(Point { x: 1, y: -9 }), &(-5, 6));
    for shape in [Shape::Empty, Shape::Circle(7), Shape::Square { side: -8, name: "square" }] {
        black_box(shapes as fn(&Shape, &Option<u32>, Option<&u32>) -> u32)(&shape, &Some(4), None);
    }
    black_box(shapes as fn(&Shape, &Option<u32>, Option<&u32>) -> u32)(&Shape::Empty, &None, Some(&5));
    let mut person = person;
    black_box(Person::birthday as fn(&mut Person, u8) -> u8)(&mut person, 2);
    black_box((person.home.map_or(0, |home| home.x), Color::Red));
}
